"""The steady step of a trace: its time, what bounds it, and how busy each lane is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rpeg.errors import InputError
from rpeg.plan import Plan
from rpeg.sim.bounds import Bound, busiest_lane
from rpeg.trace import Trace, fill_steps, step_ends


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds from the end of one step's training to that of the next, over `steps` steps between fill and drain."""

    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    steps: int


def drain_steps(plan: Plan) -> int:
    """Steps at the end that are not like the earlier ones: nothing more is generated beside them."""
    return fill_steps(plan) - 1


def steady_steps(trace: Trace) -> range:
    """The steps between fill and drain. InputError where the trace is too short to have one."""
    fill, drain = fill_steps(trace.plan), drain_steps(trace.plan)
    ended = trace.first_step + len(step_ends(trace))
    last = min(ended, trace.steps - drain) if trace.complete else ended
    if last <= trace.first_step + fill:
        raise InputError(
            f"the trace ends {ended - trace.first_step} steps and the pipeline needs {fill} to fill and {drain} to "
            f"drain: at least {fill + drain + 1} are needed"
        )
    return range(trace.first_step + fill, last)


def step_seconds(trace: Trace) -> tuple[float, ...]:
    """Seconds of each steady step. InputError where there is none."""
    steady, ends = steady_steps(trace), tuple(step_ends(trace).values())
    first, last = steady.start - trace.first_step, steady.stop - trace.first_step
    return tuple(b - a for a, b in pairwise(ends[first - 1 : last]))


def step_time(trace: Trace) -> StepTime:
    """Mean, median and 95th percentile of the steady step. InputError where the trace is too short."""
    return summary(step_seconds(trace))


def summary(seconds: Sequence[float]) -> StepTime:
    """Of steps that took so many seconds each."""
    p50, p95 = np.percentile(seconds, (50, 95))
    return StepTime(float(np.mean(seconds)), float(p50), float(p95), len(seconds))


def busy_seconds(trace: Trace) -> Mapping[str, float]:
    """Busy seconds a step of each lane, over the items of the steady steps."""
    steady = steady_steps(trace)
    busy = {lane.name: 0.0 for lane in trace.plan.order}
    for span in trace.spans:
        if span.item.step in steady:
            busy[span.lane] += span.seconds
    return {lane: seconds / len(steady) for lane, seconds in busy.items()}


def occupancy(trace: Trace) -> Mapping[str, float]:
    """The share of the steady step in which each lane is busy.

    Where steps overlap their items' seconds are those of other steps than the mean's: at most 1 all the same.
    """
    mean = step_time(trace).mean_seconds
    return {lane: min(1.0, seconds / mean) if mean else 0.0 for lane, seconds in busy_seconds(trace).items()}


def lane_bound(trace: Trace) -> Bound:
    """The busy time of the busiest lane."""
    return busiest_lane(busy_seconds(trace))


def stage_seconds(trace: Trace) -> Mapping[str, float]:
    """Seconds a step of each stage and transfer, on the lane that it keeps busiest."""
    steady = steady_steps(trace)
    busy: dict[str, dict[str, float]] = {span.item.name: {} for span in trace.spans}
    for span in trace.spans:
        if span.item.step in steady:
            lanes = busy[span.item.name]
            lanes[span.lane] = lanes.get(span.lane, 0.0) + span.seconds
    return {name: max(lanes.values(), default=0.0) / len(steady) for name, lanes in busy.items()}
