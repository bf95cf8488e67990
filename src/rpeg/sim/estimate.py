"""`estimate`: what a plan will take before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rpeg import cost
from rpeg.cost import Cost
from rpeg.plan import ItemKind, Plan, Slot, lower
from rpeg.sim.facts import Facts
from rpeg.sim.lengths import Draws
from rpeg.sim.memory import DeviceMemory, device_memory
from rpeg.sim.onestep import one_step
from rpeg.sim.simulate import simulate
from rpeg.sim.stagecosts import Memo, StageCosts
from rpeg.sim.step import (
    Bound,
    StepTime,
    drain_steps,
    lane_bound,
    occupancy,
    stage_seconds,
    steady_steps,
    step_time,
)
from rpeg.trace import fill_steps

STEPS = 10  # between fill and drain


@dataclass(frozen=True)
class Estimate:
    """step: of the steady state, its spread over draws of lengths. tokens_per_second: of responses.

    bound: what no other order on the same lanes can beat. stages: seconds a step on the lane that each keeps busiest.
    occupancy: by lane. measured_share: of the seconds that rest on measurement.
    """

    step: StepTime
    tokens_per_second: float
    memory: tuple[DeviceMemory, ...]
    bound: Bound
    stages: Mapping[str, float]
    occupancy: Mapping[str, float]
    measured_share: float

    @property
    def gap(self) -> float:
        """How much longer than the bound the step is, as a share of the bound."""
        return max(0.0, self.step.mean_seconds / self.bound.seconds - 1) if self.bound.seconds else 0.0

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
) -> Estimate:
    """Simulates a plan that passes `check` over `steps` steps between its fill and its drain.

    memo, draws: what estimates of other plans for the same workload and seed have left behind.
    """
    costs, draws = StageCosts(plan, facts, memo), draws or Draws(plan.workload, seed)
    trace = simulate(
        plan, costs, fill_steps(plan) + steps + drain_steps(plan), seed, draws=draws, samples=False
    )
    time = step_time(trace)
    tokens = sum(sum(draws.whole(step).response_lengths) for step in steady_steps(trace)) / steps
    trees = stage_trees(plan, costs, draws)
    seconds = sum(tree.seconds for tree in trees.values())
    measured = sum(tree.measured_seconds for tree in trees.values())
    return Estimate(
        time,
        tokens / time.mean_seconds if time.mean_seconds else 0.0,
        device_memory(plan, lower(plan.graph, plan.assignments, plan.workload), facts),
        lane_bound(trace),
        stage_seconds(trace),
        occupancy(trace),
        measured / seconds if seconds else 0.0,
    )


def stage_trees(plan: Plan, costs: StageCosts, draws: Draws) -> dict[str, Cost]:
    """The cost of each stage and transfer in one drawn step: parts in a row, replicas side by side."""
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    found = one_step(plan, lowered, costs, draws, 0)
    slots: dict[str, list[Slot]] = {}
    for slot in lowered.tasks:
        prefix = "transfer " if slot.kind is ItemKind.TRANSFER else ""
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
