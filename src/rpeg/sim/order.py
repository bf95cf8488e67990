"""Lane orders from what items are expected to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rpeg.ir import Kind
from rpeg.plan import ItemKind, Lowered, Plan, Slot, Task, lower, prompts_of_replica
from rpeg.schedule import list_order, share
from rpeg.sim.costs import Batch, Costs
from rpeg.sim.lengths import Draws
from rpeg.sim.stream import departures

DRAWS = 3

Durations = dict[Slot, float]
Offsets = dict[tuple[Slot, int], float]


def ordered(plan: Plan, shifts: Mapping[str, int], costs: Costs, seed: int = 0) -> Plan:
    """The plan with lane orders derived for these shifts, by stage (0 where none is given).

    Transfers take the least shift of the stages that read their copy. Raises PlanError where the shifts leave a cycle.
    """
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    durations, offsets = expected(plan, lowered, costs, seed)
    return replace(plan, order=list_order(lowered, slot_shifts(lowered, shifts), durations, offsets))


def slot_shifts(lowered: Lowered, shifts: Mapping[str, int]) -> dict[Slot, int]:
    """The shift of every slot, from those of stages."""
    copies = {copy.name: min(shifts.get(stage, 0) for stage in copy.stages) for copy in lowered.copies}
    return {
        slot: copies[slot.name] if slot.kind is ItemKind.TRANSFER else shifts.get(slot.name, 0)
        for slot in lowered.tasks
    }


def expected(plan: Plan, lowered: Lowered, costs: Costs, seed: int = 0) -> tuple[Durations, Offsets]:
    """(seconds of each slot, offset of each generator's base parts), as means over a few drawn steps."""
    draws = [_one_step(plan, lowered, costs, Draws(plan.workload, seed), step) for step in range(DRAWS)]
    durations = {slot: sum(d[slot] for d, _ in draws) / DRAWS for slot in lowered.tasks}
    offsets = {key: sum(o[key] for _, o in draws) / DRAWS for key in draws[0][1]}
    return durations, offsets


def _one_step(
    plan: Plan, lowered: Lowered, costs: Costs, draws: Draws, step: int
) -> tuple[Durations, Offsets]:
    durations: Durations = {}
    offsets: Offsets = {}
    members: dict[int, tuple[int, ...]] = {}
    generators = {s.name for s in plan.graph.stages if s.kind is Kind.GENERATE}
    for slot, task in lowered.tasks.items():
        if slot.kind is ItemKind.RUN and slot.name in generators:
            batch = _generated(plan, task, draws, step)
            done = costs.generation(slot.at(step), batch)
            durations[slot] = done.seconds + costs.dispatch_seconds
            bases = [lowered.parts[part] for part in task.covers]
            for part, (offset, where) in zip(
                task.covers, departures(plan, slot.name, bases, batch, done), strict=True
            ):
                offsets[slot, part] = offset + costs.dispatch_seconds
                members[part] = batch.take(where).ids
    for slot, task in lowered.tasks.items():
        if slot not in durations:
            ids = [i for part in task.covers for i in members[part]]
            batch = _share(draws.batch(ids), task)
            durations[slot] = costs.duration_seconds(slot.at(step), batch) + costs.dispatch_seconds
    return durations, offsets


def _generated(plan: Plan, task: Task, draws: Draws, step: int) -> Batch:
    if not task.covers:
        return Batch()
    w = plan.workload
    prompts = prompts_of_replica(w.prompts, *task.share)
    first = step * w.samples
    return draws.batch(
        range(first + prompts.start * w.samples_per_prompt, first + prompts.stop * w.samples_per_prompt)
    )


def _share(batch: Batch, task: Task) -> Batch:
    which, shares = task.share
    if shares == 1:
        return batch
    position = {sample_id: i for i, sample_id in enumerate(batch.ids)}
    ids = share(batch.ids, batch.response_lengths, shares)[which]
    return batch.take([position[i] for i in ids])
