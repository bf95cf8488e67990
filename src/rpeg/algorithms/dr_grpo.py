"""Dr. GRPO: GRPO without its biases by length and by difficulty (arXiv:2503.20783).

Advantages are not divided by the group's standard deviation, nor losses by the response's own length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rpeg.algorithms import aggregation, grpo, kl, pieces
from rpeg.ir import Graph


@dataclass(frozen=True)
class Hyper(grpo.Hyper):
    """The hyperparameters of Dr. GRPO; the base classes say what each means.

    fixed_length: what the losses of a response are divided by, best the job's max_response; a constant that the
    learning rate knows of.
    """

    normalize_std: bool = False
    kl_in: kl.KlPlace = "none"
    loss_aggregation: aggregation.Aggregation = "fixed_length"
    fixed_length: int | None = 1024


def graph(hyper: Hyper) -> Graph:
    """As GRPO's."""
    return pieces.policy_step("dr_grpo", hyper, [grpo.NORMALIZE], "grpo_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = grpo.OPS
