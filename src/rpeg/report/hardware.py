"""What people ask of a plan for hardware that they rent: how stages are cut, money, and room in memory."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.ir import Kind
from rpeg.plan import Assignment, Devices
from rpeg.search import Candidate
from rpeg.sim import Estimate
from rpeg.units import bytes_text

STEPS = 1000
"""Steps that device-hours and money are told for."""

TIGHT = 0.05
"""Share of a capacity below which what is left is no margin: peak memory is predicted to within some 9 % on average."""


def layouts(candidate: Candidate) -> Iterator[str]:
    """A line for each stage that calls models: how it is cut over its devices."""
    for assignment in candidate.plan.assignments:
        if isinstance(assignment.block, Devices):
            generates = candidate.plan.graph.stage(assignment.stage).kind is Kind.GENERATE
            yield f"  {assignment.stage}: {', '.join(_words(assignment, generates))}"


def price(candidate: Candidate) -> str:
    """Device-hours of a thousand steps, and their price where every node has one."""
    cluster, seconds = candidate.plan.cluster, candidate.estimate.step.mean_seconds
    hours, each = STEPS * seconds / 3600, cluster.price_per_hour
    money = "" if each is None else f", {hours * each:,.0f} at {each:,.2f} an hour for {cluster.name}"
    return f"{STEPS:,} steps: {hours * len(cluster):,.0f} device-hours{money}"


def headroom(estimate: Estimate) -> str:
    """Of each phase what the fullest device has left."""
    left: dict[str, float] = {}
    for device in estimate.memory:
        for phase in device.phases:
            free = device.capacity_bytes - phase.bytes
            left[phase.phase] = min(free, left.get(phase.phase, free))
    return "memory left, at least: " + ", ".join(f"{name} {bytes_text(free)}" for name, free in left.items())


def tight(estimate: Estimate) -> Iterator[str]:
    """A warning where a peak is nearer to the capacity than predictions of memory are to measurements."""
    fullest = estimate.tightest
    free = fullest.capacity_bytes - fullest.peak.bytes
    if free < TIGHT * fullest.capacity_bytes:
        yield (
            f"tight: {fullest.name} has {bytes_text(max(0.0, free))} of {bytes_text(fullest.capacity_bytes)} left in "
            f"phase {fullest.peak.phase}, less than predictions of memory are off (rpeg validate): it may not fit"
        )


def _words(assignment: Assignment, generates: bool) -> Iterator[str]:
    yield str(assignment.parallelism)
    if generates:
        yield f"{assignment.microbatch} responses at once a replica"
    else:
        yield f"micro-batches of {assignment.microbatch}"
    if assignment.recompute != "none":
        yield f"recompute {assignment.recompute}"
    if assignment.offload != "none":
        yield "asleep between runs" if generates else f"offload {assignment.offload}"
