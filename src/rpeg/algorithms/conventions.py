"""Points on which implementations of the same formulas differ, as named presets.

A job chooses one by `conventions`. Ours is exact where others guard a division: nothing is added to a count
of tokens, and a response that has no peer to be compared with teaches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Name = Literal["rpeg", "verl"]
Lone = Literal["zero", "raw"]


@dataclass(frozen=True)
class Conventions:
    """mean_epsilon: added to a count of tokens before it is divided by.
    std_epsilon: added to the standard deviation of a group before it is divided by.
    lone: the advantage of a response that is alone in its group: zero, or its reward as it is.
    """

    mean_epsilon: float
    std_epsilon: float
    lone: Lone


RPEG = Conventions(mean_epsilon=0.0, std_epsilon=1e-6, lone="zero")
VERL = Conventions(mean_epsilon=1e-8, std_epsilon=1e-6, lone="raw")
"""verl 0.9.1 (Apache-2.0): `masked_mean` in verl/utils/torch_functional.py, `compute_grpo_outcome_advantage` and
`agg_loss` in verl/trainer/ppo/core_algos.py. Its estimators by group agree on a lone response but for
`rloo_vectorized`, which gives zero as ours does. It whitens GAE's advantages always: `whiten_advantages: true`."""

PRESETS: Mapping[Name, Conventions] = MappingProxyType({"rpeg": RPEG, "verl": VERL})
