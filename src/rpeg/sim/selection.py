"""What a selector does in a simulation: groups are accepted by chance, as often as the workload says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rpeg.workload import Workload

REJECTED = "drawn"
"""Why a simulated group is turned down."""


@dataclass(frozen=True)
class Judged:
    """Samples of a round by what becomes of them; each group whole, in the order of prompts.

    over: accepted beyond the quota.
    """

    accepted: tuple[int, ...]
    rejected: tuple[int, ...]
    over: tuple[int, ...]


def judge(ids: Sequence[int], wanted: int, workload: Workload, seed: int, left: Sequence[int] = ()) -> Judged:
    """ids: of a round. wanted: samples that the step still lacks. left: accepted ones of the step before, which come
    first. The first in the order of prompts are taken."""
    each, step = workload.samples_per_prompt, (ids[0] // workload.asked if ids else 0)
    drawn = workload.draw_accepted(seed, step)
    first = step * workload.asked_prompts
    ordered = sorted(ids)
    passed = [i for i in ordered if drawn[i // each - first]]
    taken = [*sorted(left), *passed]
    rejected = tuple(i for i in ordered if not drawn[i // each - first])
    return Judged(tuple(taken[:wanted]), rejected, tuple(taken[wanted:]))
