"""When the steps of a trace ended."""

from __future__ import annotations

from collections.abc import Mapping

from rpeg.ir import Kind
from rpeg.plan import Plan, Slot
from rpeg.trace.entry import What
from rpeg.trace.trace import Trace


def step_ends(trace: Trace) -> Mapping[int, float]:
    """Step → when all its training had ended, by the driver's clock; steps without that are left out."""
    trainers = {s.name for s in trace.plan.graph.stages if s.kind is Kind.TRAIN}
    due = {turn.slot for lane in trace.plan.order for turn in lane.turns if turn.slot.name in trainers}
    ended: dict[int, set[Slot]] = {}
    ends: dict[int, float] = {}
    for entry in trace.entries:
        if entry.what is What.FINISHED and entry.item.slot in due:
            ended.setdefault(entry.item.step, set()).add(entry.item.slot)
            ends[entry.item.step] = max(entry.seconds, ends.get(entry.item.step, entry.seconds))
    return {step: ends[step] for step in sorted(ended) if ended[step] >= due}


def fill_steps(plan: Plan) -> int:
    """Steps at a stretch's start that are unlike the later ones: versions are not yet as old as they will be."""
    return max((edge.delay for edge in plan.graph.edges), default=1)
