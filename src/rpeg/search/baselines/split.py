"""Generation apart from training."""

from __future__ import annotations

from rpeg.search.baselines.family import Family
from rpeg.search.constructions import Construction, with_staleness
from rpeg.search.placements import splits
from rpeg.search.problem import Problem


def actor_rollout_split(problem: Problem) -> Family:
    """Step by step, so that neither works while the other does.

    Cuts of the devices of a kind, or between kinds; assessment on either side.
    """
    found = tuple(Construction(problem.graph, p, problem.applied) for p in splits(problem))
    reason = "" if found else "one device cannot be split"
    return Family("actor/rollout split", found, refused=reason)


def asynchronous(problem: Problem) -> Family:
    """At the same time, with weights as old as the job allows: members only where it allows any."""
    allowed = [staleness for staleness in problem.permissions.choices if staleness]
    found = [with_staleness(problem, p, staleness) for p in splits(problem) for staleness in allowed]
    return Family("asynchronous split", tuple(found), refused="" if found else "the job allows no staleness")
