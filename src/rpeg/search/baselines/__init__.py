"""Plans that people run without a search, by name: `families` of a problem, each with its best member estimated.

To add one, write a function from a problem to its `Family` and name it in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rpeg.search.baselines import colocated, real, split, verl
from rpeg.search.baselines.compared import Compared
from rpeg.search.baselines.family import Family
from rpeg.search.candidate import Baseline, Candidate
from rpeg.search.estimator import Estimator
from rpeg.search.problem import Problem

FAMILIES = (
    colocated.one_layout,
    colocated.a_layout_each,
    split.actor_rollout_split,
    real.heuristic,
    real.meshes,
    verl.sync,
    verl.colocate_async,
    verl.separate_async,
    verl.one_step_off,
    verl.fully_async,
)


def families(problem: Problem) -> tuple[Family, ...]:
    """All, the simplest first; one that the job does not allow says why."""
    return tuple(family(problem) for family in FAMILIES)


def baselines(estimator: Estimator, searched: Sequence[Candidate] = ()) -> tuple[Baseline, ...]:
    """The best plan of each family of the estimator's problem, also of those that a search has found."""
    compared = Compared(estimator, searched)
    return tuple(compared.baseline(family) for family in families(estimator.problem))


__all__ = ["FAMILIES", "Family", "baselines", "families"]
