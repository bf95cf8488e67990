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


def baselines(estimator: Estimator) -> tuple[Baseline, ...]:
    """The best plan of each family of the estimator's problem."""
    compared = Compared(estimator)
    return tuple(compared.baseline(family) for family in families(estimator.problem))


def with_searched(
    problem: Problem, known: Sequence[Baseline], searched: Sequence[Candidate]
) -> tuple[Baseline, ...]:
    """The baselines of all families, where a plan that a search has found is of a family and faster that one."""
    found = []
    for family, baseline in zip(families(problem), known, strict=True):
        own = [c for c in (baseline.candidate, *filter(family.takes, searched)) if c is not None]
        best = min(own, key=lambda c: c.estimate.step.mean_seconds, default=None)
        found.append(baseline if best is baseline.candidate else Baseline(baseline.name, best))
    return tuple(found)


__all__ = ["FAMILIES", "Family", "baselines", "families", "with_searched"]
