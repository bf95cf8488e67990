"""The times that a plan's items have for one drawn step, and the steady step time over many draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rpeg.plan import Arc, Lowered, Plan, Slot, ids_of_members, lower
from rpeg.sim.costs import Costs
from rpeg.sim.events import Times, events
from rpeg.sim.howard import CycleRatio, cycle_ratio
from rpeg.sim.lengths import Draws
from rpeg.sim.onestep import OneStep, one_step
from rpeg.sim.step import StepTime, summary

DRAWS = 16
"""Steps of lengths that an expectation is a mean of, where none are named."""


@dataclass(frozen=True)
class DrawnTimes:
    """times: of every item at a step's lengths, dispatch included. void: arcs whose source holds no member of it."""

    times: Times
    void: frozenset[Arc] = frozenset()


@dataclass(frozen=True)
class SteadySteps:
    """step_seconds: the cycle ratio at the lengths of each draw. mean: the times that the draws have on average."""

    step_seconds: tuple[float, ...]
    mean: Times
    critical: CycleRatio

    @property
    def time(self) -> StepTime:
        """The expected steady step, with its median and 95th percentile over the draws."""
        return summary(self.step_seconds)


def steady_steps_of(
    plan: Plan,
    costs: Costs,
    draws: Draws,
    steps: Sequence[int] = range(DRAWS),
    lowered: Lowered | None = None,
) -> SteadySteps:
    """The cycle ratio of a plan at the lengths of each of these steps, as if all steps had them.

    Two plans are comparable on the same `draws` and `steps`: they meet the same lengths. critical: of the mean times,
    whose ratio no mean over draws is below (it is convex in the times). Where steps overlap, a run evens out draws
    that differ from step to step; what is told of such plans comes from a simulation of many steps.
    """
    lowered = lowered or lower(plan.graph, plan.assignments, plan.workload)
    structure = events(lowered, plan.shifts, plan.order)
    drawn = [drawn_times(plan, lowered, costs, draws, step) for step in steps]
    ratios = tuple(cycle_ratio(structure.timed(one.times, one.void)).step_seconds for one in drawn)
    mean = mean_times([one.times for one in drawn])
    return SteadySteps(ratios, mean, cycle_ratio(structure.timed(mean, structure.uncertain)))


def drawn_times(plan: Plan, lowered: Lowered, costs: Costs, draws: Draws, step: int) -> DrawnTimes:
    """Of every item at the lengths of a step."""
    found = one_step(plan, lowered, costs, draws, step)
    return DrawnTimes(
        times_of(lowered, found, costs, step), frozenset(_void(plan, lowered, draws, found, step))
    )


def times_of(lowered: Lowered, found: OneStep, costs: Costs, step: int) -> Times:
    """From each item's command on: the seconds of its dispatch and its work."""
    overhead = costs.dispatch_seconds
    durations = {
        slot: 0.0 if slot in found.unused else overhead + _seconds(slot, found, costs, step)
        for slot in lowered.tasks
    }
    return durations, {
        key: 0.0 if key[0] in found.unused else overhead + seconds
        for key, seconds in found.offset_seconds.items()
    }


def mean_times(times: Sequence[Times]) -> Times:
    """The mean of each item's and each part's seconds."""
    durations, offsets = times[0]
    return (
        {slot: sum(one[0][slot] for one in times) / len(times) for slot in durations},
        {key: sum(one[1][key] for one in times) / len(times) for key in offsets},
    )


def _seconds(slot: Slot, found: OneStep, costs: Costs, step: int) -> float:
    if slot in found.seconds:
        return found.seconds[slot]
    return costs.duration_seconds(slot.at(step), found.batches[slot])


def _void(plan: Plan, lowered: Lowered, draws: Draws, found: OneStep, step: int) -> Iterator[Arc]:
    """Arcs that wait for members where their source has none, by the rule of the scheduler."""
    held: dict[tuple[Slot, int | None], frozenset[int]] = {}
    for arc in (arc for arc in lowered.arcs if arc.if_members):
        for key in ((arc.dst, None), (arc.src, arc.part)):
            if key not in held:
                held[key] = _held(plan, lowered, draws, found, step, *key)
        if held[arc.dst, None].isdisjoint(held[arc.src, arc.part]):
            yield arc


def _held(
    plan: Plan, lowered: Lowered, draws: Draws, found: OneStep, step: int, slot: Slot, part: int | None
) -> frozenset[int]:
    """The samples that an item, or a base part that left it, holds."""
    task = lowered.tasks[slot]
    if part is None and task.members is not None:
        return frozenset(ids_of_members(task.members, plan.workload, draws.seed, step))
    return frozenset(i for p in (task.covers if part is None else (part,)) for i in found.parts[p])
