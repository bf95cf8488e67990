"""What a plan's step time depends on: the same job with a node more, faster links, a shorter tail, older weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rpeg.errors import InputError
from rpeg.plan import check
from rpeg.search.candidate import Candidate, Ranked
from rpeg.search.changes import Change, Devices, FasterLinks, ShorterTail, Staleness, more_nodes
from rpeg.search.estimator import FINAL_STEPS
from rpeg.search.problem import Problem
from rpeg.sim import Draws, estimate

WORTH = 0.01
"""Share of the step that a node must bring; where it does not, twice the devices are looked at too."""

Replan = Callable[[Problem], Ranked]


@dataclass(frozen=True)
class Effect:
    """What a change brings. words, cost, learning: of the change, in words; learning is "" where nothing is changed.

    before_seconds: the chosen plan's mean step. kept_seconds: that plan's under the change, None where it is none then.
    replanned_seconds: of the best plan then, None where none was looked for or found, and reason says why.
    plan: that plan's name. devices: before and after.
    """

    words: str
    cost: str
    learning: str
    before_seconds: float
    kept_seconds: float | None
    replanned_seconds: float | None
    plan: str
    reason: str
    devices: tuple[int, int]

    @property
    def after_seconds(self) -> float | None:
        """The better of both; None where nothing runs."""
        return min(filter(None, (self.kept_seconds, self.replanned_seconds)), default=None)

    @property
    def saved(self) -> float:
        """Share of the step that it saves; negative where it costs some, 0 where nothing runs."""
        return 0.0 if self.after_seconds is None else 1 - self.after_seconds / self.before_seconds

    @property
    def device_hours(self) -> float:
        """Device-hours of a step after the change, as a multiple of those before."""
        return (1 - self.saved) * self.devices[1] / self.devices[0]


def usual_changes(problem: Problem) -> tuple[Change, ...]:
    """One more node, links of twice the speed, half the tail, one step of staleness more."""
    staleness = max(problem.permissions.choices)
    return more_nodes(problem), FasterLinks(), ShorterTail(), Staleness(staleness + 1)


def sensitivity(
    problem: Problem,
    chosen: Candidate,
    *,
    replan: Replan | None,
    seed: int = 0,
    report: Callable[[str], None] = lambda words: None,
) -> tuple[Effect, ...]:
    """What each of the usual changes brings over the plan chosen for a problem; those that cannot be made are left out.

    replan: plans a changed problem, as the problem was; None estimates the chosen plan again, and leaves changes out
    that only add plans. report: is told what is looked at.
    """
    found: list[Effect] = []
    for change in usual_changes(problem):
        if replan or not change.widens:
            found += _effects(problem, chosen, change, replan, seed, report)
            if isinstance(change, Devices) and found and found[-1].saved < WORTH:
                found += _effects(problem, chosen, Devices(2 * len(problem.cluster)), replan, seed, report)
    return tuple(found)


def _effects(
    problem: Problem,
    chosen: Candidate,
    change: Change,
    replan: Replan | None,
    seed: int,
    report: Callable[[str], None],
) -> Iterator[Effect]:
    """Of one change; none where it cannot be made."""
    try:
        changed = change.apply(problem)
    except InputError:
        return
    report(change.words(problem))
    again, plan, reason = _replanned(changed, replan) if replan else (None, "", "not looked for")
    yield Effect(
        change.words(problem),
        change.cost(problem),
        change.learning(problem),
        chosen.estimate.step.mean_seconds,
        _kept_seconds(changed, chosen, seed),
        again,
        plan,
        reason,
        (len(problem.cluster), len(changed.cluster)),
    )


def _kept_seconds(changed: Problem, chosen: Candidate, seed: int) -> float | None:
    """The chosen plan's mean step on the changed cluster and workload; None where it does not run or fit there."""
    plan = replace(chosen.plan, cluster=changed.cluster, workload=changed.workload)
    if plan == chosen.plan:
        return chosen.estimate.step.mean_seconds
    try:
        draws = Draws(changed.workload, seed)
        found = estimate(check(plan), changed.facts, steps=FINAL_STEPS, draws=draws)
    except InputError:
        return None
    return found.step.mean_seconds if found.fits else None


def _replanned(changed: Problem, replan: Replan) -> tuple[float | None, str, str]:
    """(mean step, name, why there is none)."""
    try:
        best = replan(changed).best
    except InputError as error:
        return None, "", str(error)
    return best.estimate.step.mean_seconds, best.name, ""
