"""When the steps of a trace ended."""

from __future__ import annotations

from collections.abc import Mapping

from rpeg.ir import Kind
from rpeg.plan import Plan
from rpeg.trace.entry import What
from rpeg.trace.trace import Trace


def step_ends(trace: Trace) -> Mapping[int, float]:
    """Step → when all its training had ended, by the driver's clock; steps without that are left out."""
    trainers = {s.name: s for s in trace.plan.graph.stages if s.kind is Kind.TRAIN}
    ended: dict[int, set[str]] = {}
    ends: dict[int, float] = {}
    for entry in trace.entries:
        if entry.what is What.FINISHED and entry.item.name in trainers:
            ended.setdefault(entry.item.step, set()).add(entry.item.name)
            ends[entry.item.step] = max(entry.seconds, ends.get(entry.item.step, entry.seconds))
    due = {step: {name for name, s in trainers.items() if s.fires(step)} for step in ended}
    return {step: ends[step] for step in sorted(ended) if ended[step] >= due[step]}


def fill_steps(plan: Plan) -> int:
    """Steps at a stretch's start that are unlike the later ones: versions are not yet as old as they will be."""
    return max((edge.delay for edge in plan.graph.edges), default=1)
