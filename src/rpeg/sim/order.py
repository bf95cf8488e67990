"""Lane orders from what items are expected to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rpeg.plan import ItemKind, Lowered, Plan, Slot, lower
from rpeg.schedule import list_order
from rpeg.sim.costs import Costs
from rpeg.sim.drawn import drawn_times, mean_times
from rpeg.sim.events import Times
from rpeg.sim.lengths import Draws

DRAWS = 2  # steps that expected seconds are a mean of


def ordered(plan: Plan, shifts: Mapping[str, int], costs: Costs, draws: Draws | None = None) -> Plan:
    """The plan with lane orders derived for these shifts, by stage (0 where none is given).

    Transfers take the least shift of the stages that read their copy. Raises PlanError where the shifts leave a cycle.
    """
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    durations, offsets = expected(plan, lowered, costs, draws or Draws(plan.workload, 0))
    return replace(plan, order=list_order(lowered, slot_shifts(lowered, shifts), durations, offsets))


def slot_shifts(lowered: Lowered, shifts: Mapping[str, int]) -> dict[Slot, int]:
    """The shift of every slot, from those of stages: of what comes before them the least, of what goes the greatest."""
    moved = {
        (kind, what.name): choose(shifts.get(stage, 0) for stage in what.stages)
        for kind, choose, all_of in (
            (ItemKind.TRANSFER, min, lowered.copies),
            (ItemKind.RELOAD, min, lowered.rests),
            (ItemKind.OFFLOAD, max, lowered.rests),
        )
        for what in all_of
    }
    return {
        slot: shifts.get(slot.name, 0) if slot.kind is ItemKind.RUN else moved[slot.kind, slot.name]
        for slot in lowered.tasks
    }


def expected(plan: Plan, lowered: Lowered, costs: Costs, draws: Draws) -> Times:
    """(seconds of each slot, offset of each generator's base parts), as means over a few drawn steps."""
    steps = [drawn_times(plan, lowered, costs, draws, step).times for step in range(DRAWS)]
    return mean_times(steps)
