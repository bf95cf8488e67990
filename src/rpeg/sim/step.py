"""The steady step of a trace: its time, what bounds it, and how busy each lane is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rpeg.errors import InputError
from rpeg.ir import Kind
from rpeg.plan import ItemKind
from rpeg.trace import Trace, What


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds from the end of one step's training to that of the next, over `steps` steps after the fill."""

    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    steps: int


@dataclass(frozen=True, slots=True)
class Bound:
    """No order of the same items on the same lanes has a shorter step: the busiest lane and its busy seconds a step."""

    lane: str
    seconds: float


def step_ends(trace: Trace) -> tuple[float, ...]:
    """When the training of each step ended, by the driver's clock; steps that did not end are left out."""
    trainers = {s.name for s in trace.plan.graph.stages if s.kind is Kind.TRAIN}
    ends: dict[int, float] = {}
    seen: dict[int, int] = {}
    for entry in trace.entries:
        if entry.what is What.FINISHED and entry.item.kind is ItemKind.RUN and entry.item.name in trainers:
            ends[entry.item.step] = max(entry.seconds, ends.get(entry.item.step, 0.0))
            seen[entry.item.step] = seen.get(entry.item.step, 0) + 1
    return tuple(ends[step] for step in sorted(ends) if seen[step] == len(trainers))


def fill_steps(trace: Trace) -> int:
    """Steps at the start that are not like the later ones: versions are not yet as old as they will be."""
    return max((edge.delay for edge in trace.plan.graph.edges), default=1)


def step_seconds(trace: Trace) -> tuple[float, ...]:
    """Seconds of each step after the fill. InputError where the trace is too short to have one."""
    ends, fill = step_ends(trace), fill_steps(trace)
    if len(ends) <= fill:
        raise InputError(
            f"the trace ends {len(ends)} steps and the pipeline needs {fill} to fill: at least {fill + 1} are needed"
        )
    return tuple(b - a for a, b in pairwise(ends[fill - 1 :]))


def step_time(trace: Trace) -> StepTime:
    """Mean, median and 95th percentile of the steady step. InputError where the trace is too short."""
    return summary(step_seconds(trace))


def summary(seconds: Sequence[float]) -> StepTime:
    """Of steps that took so many seconds each."""
    p50, p95 = np.percentile(seconds, (50, 95))
    return StepTime(float(np.mean(seconds)), float(p50), float(p95), len(seconds))


def busy_seconds(trace: Trace) -> Mapping[str, float]:
    """Busy seconds a step of each lane, over the items of the steps after the fill."""
    fill = trace.first_step + fill_steps(trace)
    steps = trace.steps - fill
    busy: dict[str, float] = {lane.name: 0.0 for lane in trace.plan.order}
    for span in trace.spans:
        if fill <= span.item.step < trace.steps:
            busy[span.lane] += span.seconds
    return {lane: seconds / max(1, steps) for lane, seconds in busy.items()}


def occupancy(trace: Trace) -> Mapping[str, float]:
    """The share of the steady step in which each lane is busy."""
    mean = step_time(trace).mean_seconds
    return {lane: seconds / mean if mean else 0.0 for lane, seconds in busy_seconds(trace).items()}


def lane_bound(trace: Trace) -> Bound:
    """The busy time of the busiest lane."""
    busy = busy_seconds(trace)
    lane = max(sorted(busy), key=lambda name: busy[name])
    return Bound(lane, busy[lane])


def stage_seconds(trace: Trace) -> Mapping[str, float]:
    """Seconds a step of each stage and transfer, on the lane that it keeps busiest."""
    fill = trace.first_step + fill_steps(trace)
    busy: dict[tuple[str, str], float] = {}
    for span in trace.spans:
        if fill <= span.item.step < trace.steps:
            key = (span.item.name, span.lane)
            busy[key] = busy.get(key, 0.0) + span.seconds
    names = dict.fromkeys(span.item.name for span in trace.spans)
    steps = max(1, trace.steps - fill)
    return {n: max((s for (m, _), s in busy.items() if m == n), default=0.0) / steps for n in names}
