"""What a plan will take, with how sure that is: seconds, device-hours and money, bytes left."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.cluster import Cluster
from rpeg.cost.kernels.sources import source_of
from rpeg.plan.assignment import ranges
from rpeg.report.kernels_shown import basis
from rpeg.report.limits import busy_share
from rpeg.report.model_error import model_errors
from rpeg.report.tables import percent
from rpeg.search import Candidate, Problem
from rpeg.search.sweep import STEPS
from rpeg.sim import DeviceMemory, Estimate
from rpeg.units import bytes_text, count_text, seconds_text


def step(estimate: Estimate, problem: Problem) -> Iterator[str]:
    """The step's time, its spread over drawn lengths, what it rests on, and the model's own error."""
    s = estimate.step
    yield (
        f"{seconds_text(s.mean_seconds)} on average over {s.steps} steps of drawn lengths; half take less than "
        f"{seconds_text(s.p50_seconds)} (p50), 95 of 100 less than {seconds_text(s.p95_seconds)} (p95)"
    )
    what = "on this machine" if problem.is_local else "in tables of kernels"
    yield f"{percent(estimate.measured_share)} of the seconds of its stages rest on measurements {what}"
    if not problem.is_local:
        kinds = (kind.name for kind in problem.cluster.kinds if not source_of(kind).own)
        yield from (f"kernels of {name}: {basis(name)}" for name in kinds)
        yield own_error(s.mean_seconds)


def own_error(seconds: float) -> str:
    """What the model's error on published RL steps means for a step that is predicted to take so long."""
    error = model_errors()["rl"]
    low, high = error.likely(seconds)
    return (
        f"published RL steps were predicted to within {error.median:.0%} (median) and {error.p90:.0%} (9 of 10; "
        f"{error.records} steps, on average {error.bias:+.0%}): by that 9 of 10 such steps take {seconds_text(low)} to "
        f"{seconds_text(high)} (rpeg validate)"
    ).replace("%", " %")


def speed(candidate: Candidate) -> str:
    """Tokens, and how well devices are used: all of the cluster count, used or not."""
    e, plan = candidate.estimate, candidate.plan
    devices, each = len(plan.cluster), e.tokens_per_second / len(plan.cluster)
    return (
        f"{count_text(e.tokens_per_second)} response tokens/s, {count_text(each)} for each of all {devices} devices; "
        f"they are busy {percent(busy_share(e, plan))} of the step and do {percent(e.mfu)} of the FLOP that they could "
        "in it (MFU)"
    )


def device_hours(candidate: Candidate, steps: int = STEPS) -> float:
    """All devices of the cluster are paid for, used or not."""
    return steps * candidate.estimate.step.mean_seconds / 3600 * len(candidate.plan.cluster)


def money(candidate: Candidate, steps: int = STEPS) -> float | None:
    """In the currency of the prices; None where a node has none."""
    each = candidate.plan.cluster.price_per_hour
    return None if each is None else steps * candidate.estimate.step.mean_seconds / 3600 * each


def price(candidate: Candidate) -> str:
    """Time, device-hours and money of a thousand steps, and whose prices these are."""
    cluster, paid = candidate.plan.cluster, money(candidate)
    taken = seconds_text(STEPS * candidate.estimate.step.mean_seconds)
    said = f"{STEPS:,} steps: {taken}, {device_hours(candidate):,.0f} device-hours"
    if paid is None:
        kinds = ", ".join(f"{kind.name}: 2.5" for kind in cluster.kinds)
        return f"{said}; no price is known of {cluster.name}: say that of a device-hour, prices: {{{kinds}}}"
    return f"{said}, {paid:,.0f} at {cluster.price_per_hour:,.2f} an hour ({price_source(cluster)})"


def price_source(cluster: Cluster) -> str:
    """Who says what the nodes cost."""
    return "; ".join(dict.fromkeys(node.price_source or "the cluster's file" for node in cluster.nodes))


def headroom_bytes(memory: DeviceMemory) -> dict[str, float]:
    """What is left of a device in each phase."""
    return {phase.phase: memory.capacity_bytes - phase.bytes for phase in memory.phases}


def room(estimate: Estimate) -> float:
    """Bytes left at the peak of the tightest device (hosts aside); below zero where it does not fit."""
    return min(m.capacity_bytes - m.peak.bytes for m in estimate.memory if not m.host)


def headroom(estimate: Estimate) -> Iterator[str]:
    """Of the tightest device what is left in each phase; of the others the least."""
    tightest = estimate.tightest
    phases = ", ".join(
        f"{name} {bytes_text(free)}" for name, free in least_room_first(headroom_bytes(tightest))
    )
    yield f"tightest: {alike(tightest)} of {bytes_text(tightest.capacity_bytes)}; left in {phases}"
    for other in estimate.memory:
        if other != tightest and other.phases:
            name, free = least_room_first(headroom_bytes(other))[0]
            yield f"{alike(other)} of {bytes_text(other.capacity_bytes)}: {bytes_text(free)} left in {name}"


def least_room_first(left: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(left.items(), key=lambda pair: pair[1])


def alike(memory: DeviceMemory) -> str:
    """``device 3``, ``devices 8-15``, ``hosts of nodes 0-6``; many ranges in short: ``devices 0,8,…,56 (8)``."""
    if memory.alike == 1:
        return memory.name
    runs = ranges(memory.ids).split(",")
    few = len(runs) <= _RANGES
    numbers = ",".join(runs) if few else f"{','.join(runs[: _RANGES - 1])},…,{runs[-1]} ({memory.alike})"
    return f"{'hosts of nodes' if memory.host else 'devices'} {numbers}"


_RANGES = 3
"""Of device numbers, in one name."""


def is_tight(estimate: Estimate) -> bool:
    """Whether what is left at the peak is no margin: less than predictions of peak memory are off on average."""
    tightest = estimate.tightest
    return (
        tightest.capacity_bytes - tightest.peak.bytes
        < model_errors()["memory"].median * tightest.capacity_bytes
    )


def tight(estimate: Estimate) -> Iterator[str]:
    """A warning where the plan may not fit after all."""
    if is_tight(estimate):
        fullest, error = estimate.tightest, model_errors()["memory"]
        free = max(0.0, fullest.capacity_bytes - fullest.peak.bytes)
        yield (
            f"tight: {fullest.name} has {bytes_text(free)} of {bytes_text(fullest.capacity_bytes)} left in phase "
            f"{fullest.peak.phase}; half of the published peaks were more than {error.median:.0%} off: it may not fit"
        ).replace("%", " %")
