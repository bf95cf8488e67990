"""`estimate`: what a plan will take before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rpeg import cost
from rpeg.cost import Cost
from rpeg.ir import Stage
from rpeg.plan import ItemKind, Plan, Slot, lower
from rpeg.sim.bounds import Bound, Bounds, dependencies, least_work
from rpeg.sim.drawn import steady_steps_of
from rpeg.sim.facts import Facts
from rpeg.sim.howard import CycleRatio
from rpeg.sim.lengths import Draws
from rpeg.sim.memory import DeviceMemory, device_memory
from rpeg.sim.onestep import one_step
from rpeg.sim.simulate import simulate
from rpeg.sim.stagecosts import Memo, StageCosts
from rpeg.sim.staleness import Staleness, staleness
from rpeg.sim.step import (
    StepTime,
    drain_steps,
    lane_bound,
    occupancy,
    stage_seconds,
    steady_steps,
    step_time,
)
from rpeg.sim.useful import peak_flops, useful_flops
from rpeg.trace import fill_steps

STEPS = 10  # between fill and drain


@dataclass(frozen=True)
class Estimate:
    """step: of the steady state, its spread over draws of lengths. tokens_per_second: of responses.

    bounds: what a step takes at least. critical: the cycle of items that limits it, at mean times.
    stages: seconds a step on the lane that each keeps busiest.
    occupancy: by lane, the share of the step in which it is busy. mfu: useful FLOP over what all devices could do in
    the step; a busy lane may still use its device badly.
    measured_share: of the seconds that rest on measurement. staleness: of the samples that the steady steps train on.
    """

    step: StepTime
    tokens_per_second: float
    memory: tuple[DeviceMemory, ...]
    bounds: Bounds
    critical: CycleRatio
    stages: Mapping[str, float]
    occupancy: Mapping[str, float]
    mfu: float
    measured_share: float
    staleness: Staleness

    @property
    def bound(self) -> Bound:
        """The tightest."""
        return self.bounds.tightest

    @property
    def gap(self) -> float:
        """How much longer than the tightest bound the step is, as a share of the bound."""
        return self.gap_to(self.bound)

    def gap_to(self, bound: Bound) -> float:
        """How much longer than a bound the step is, as a share of the bound."""
        return max(0.0, self.step.mean_seconds / bound.seconds - 1) if bound.seconds else 0.0

    @property
    def tightest(self) -> DeviceMemory:
        """The device that is nearest to its capacity, or furthest beyond."""
        return max(self.memory, key=lambda m: m.peak.bytes / m.capacity_bytes)

    @property
    def fits(self) -> bool:
        """Whether every phase fits on every device."""
        return all(m.short_bytes == 0 for m in self.memory)


def estimate(
    plan: Plan,
    facts: Facts,
    *,
    steps: int = STEPS,
    seed: int = 0,
    memo: Memo | None = None,
    draws: Draws | None = None,
    device_seconds: Callable[[Stage], float] | None = None,
) -> Estimate:
    """Simulates a plan that passes `check` over `steps` steps between its fill and its drain.

    memo, draws: what estimates of other plans for the same workload and seed have left behind.
    device_seconds: of a stage at its best, for the bound by work (`least_work`); None leaves that bound out.
    """
    costs, draws = StageCosts(plan, facts, memo), draws or Draws(plan.workload, seed)
    trace = simulate(
        plan, costs, fill_steps(plan) + steps + drain_steps(plan), seed, draws=draws, samples=False
    )
    time, steady = step_time(trace), steady_steps(trace)
    tokens = sum(sum(draws.whole(step).response_lengths) for step in steady) / steps
    flops = sum(useful_flops(plan, facts, draws.whole(step)) for step in steady) / steps
    trees = stage_trees(plan, costs, draws)
    seconds = sum(tree.seconds for tree in trees.values())
    measured = sum(tree.measured_seconds for tree in trees.values())
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    cycles = steady_steps_of(plan, costs, draws, steady, lowered)
    work = None if device_seconds is None else least_work(plan.graph, plan.cluster, device_seconds)
    return Estimate(
        time,
        _per(tokens, time.mean_seconds),
        device_memory(plan, lowered, facts),
        Bounds(lane_bound(trace), dependencies(lowered, cycles.mean), work).up_to(time.mean_seconds),
        cycles.critical,
        stage_seconds(trace),
        occupancy(trace),
        _per(flops, time.mean_seconds * peak_flops(plan, facts.dtype)),
        _per(measured, seconds),
        staleness(trace, steady),
    )


def _per(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def stage_trees(plan: Plan, costs: StageCosts, draws: Draws) -> dict[str, Cost]:
    """The cost of each stage and transfer in one drawn step: parts in a row, replicas side by side."""
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    found = one_step(plan, lowered, costs, draws, 0)
    slots: dict[str, list[Slot]] = {}
    for slot in lowered.tasks:
        prefix = "" if slot.kind is ItemKind.RUN else f"{slot.kind} "
        slots.setdefault(prefix + slot.name, []).append(slot)
    return {
        name: _together(name, [(slot, costs.tree(slot.at(0), found.batches[slot])) for slot in own])
        for name, own in slots.items()
    }


def _together(name: str, items: list[tuple[Slot, Cost]]) -> Cost:
    if len(items) == 1:
        return items[0][1]
    replicas: dict[int, list[Cost]] = {}
    for slot, tree in items:
        replicas.setdefault(slot.replica, []).append(tree)
    rows = [
        trees[0] if len(trees) == 1 else cost.sequence(f"{name}, {len(trees)} parts", trees)
        for trees in replicas.values()
    ]
    return rows[0] if len(rows) == 1 else cost.parallel(f"{name} on {len(rows)} replicas", rows)
