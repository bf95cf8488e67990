"""Plans and their estimates as people read them, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from rpeg.plan import plan_to_json
from rpeg.report.tables import percent, table
from rpeg.search import Candidate, Misfit, Problem, Ranked, devices_in_short
from rpeg.sim import DeviceMemory, Estimate
from rpeg.units import bytes_text, count_text, seconds_text

COLUMNS = (">#", "plan", ">parts", ">stale", ">step p50", ">p95", ">tok/s", ">memory", ">gap")


LEGEND = (
    "colocated: all stages on all devices · split: generation and training apart · apart: actor and critic apart",
    "parts: samples that leave generation together, to be assessed meanwhile · gap: to the busiest lane's own work",
)
SHOWN = 10


def ranking(ranked: Ranked, most: int = SHOWN, chosen: int = 0) -> Table:
    """The fastest `most` candidates with their numbers, the fastest first; `chosen` is bold.

    parts: samples (or groups) that leave generation together. stale: versions that trained tokens may be behind,
    which changes what is learned. memory: the fullest device's peak. gap: to the busy time of the busiest lane.
    """
    rows = [_row(i, c, i == chosen) for i, c in enumerate(ranked.candidates[: max(most, chosen + 1)])]
    shown = [i for i, name in enumerate(COLUMNS) if name != ">stale" or any(row[i] for row in rows)]
    return table([COLUMNS[i] for i in shown], ([row[i] for i in shown] for row in rows), marked=chosen)


def _row(index: int, candidate: Candidate, chosen: bool) -> tuple[str, ...]:
    e, built = candidate.estimate, candidate.construction
    return (
        str(index + 1),
        ("▶ " if chosen else "  ") + built.placement.name,
        built.parts.removesuffix(" samples"),
        str(built.staleness or ""),
        seconds_text(e.step.p50_seconds),
        seconds_text(e.step.p95_seconds),
        count_text(e.tokens_per_second),
        bytes_text(e.tightest.peak.bytes),
        percent(e.gap),
    )


def misfits(found: tuple[Misfit, ...]) -> Iterator[str]:
    """A line for each construction that cannot be had."""
    yield from (f"left out: {m.name}: {m.reason}" for m in found)


def summary(candidate: Candidate, problem: Problem) -> Iterator[str]:
    """The chosen plan in a few lines: who runs where, what it rests on, what it changes."""
    e = candidate.estimate
    for devices, stages in devices_in_short(candidate.plan):
        yield f"devices {devices}: {stages}"
    yield f"transforms: {', '.join(candidate.plan.applied) or 'none'}"
    yield f"changes what is learned: {', '.join(candidate.changes) or 'no'}"
    yield (
        f"step {seconds_text(e.step.mean_seconds)} (mean of {e.step.steps} drawn steps); the busiest lane, "
        f"{e.bound.lane}, needs {seconds_text(e.bound.seconds)}: another order could bring at most {percent(e.gap)}"
    )
    yield f"{percent(e.measured_share)} of the seconds rest on measurement"
    yield from (f"assumed: {sentence}" for sentence in problem.assumptions)


def stages(estimate: Estimate) -> Table:
    """Seconds of each stage and transfer in a step, on the lane that it keeps busiest."""
    rows = sorted(estimate.stages.items(), key=lambda pair: -pair[1])
    mean = estimate.step.mean_seconds
    return table(
        ("stage", ">seconds a step", ">of the step"),
        ((name, seconds_text(s), percent(s / mean if mean else 0.0)) for name, s in rows),
    )


def memory(devices: tuple[DeviceMemory, ...]) -> Table:
    """Bytes of each device in each phase, and what it has."""
    phases = list(dict.fromkeys(m.phase for device in devices for m in device.phases))
    rows = [(phase, *(_of_phase(device, phase) for device in devices)) for phase in phases]
    there = ("there is", *(bytes_text(device.capacity_bytes) for device in devices))
    return table(("memory", *(f">{_which(device)}" for device in devices)), (*rows, there))


def _which(device: DeviceMemory) -> str:
    return device.name + (f" and {device.alike - 1} like it" if device.alike > 1 else "")


def _of_phase(device: DeviceMemory, phase: str) -> str:
    return next((bytes_text(m.bytes) for m in device.phases if m.phase == phase), "")


def ranked_json(ranked: Ranked, problem: Problem) -> dict[str, Any]:
    """JSON-ready: the best plan whole, the estimates of all, what was left out and what was assumed."""
    return {
        "best": plan_to_json(ranked.best.plan),
        "candidates": [_candidate_json(c) for c in ranked.candidates],
        "left_out": [{"name": m.name, "reason": m.reason} for m in ranked.misfits],
        "assumptions": list(problem.assumptions),
    }


def _candidate_json(candidate: Candidate) -> Mapping[str, Any]:
    e = candidate.estimate
    return {
        "name": candidate.name,
        "devices": dict(devices_in_short(candidate.plan)),
        "applied": list(candidate.plan.applied),
        "changes_in_learning": list(candidate.changes),
        "step_seconds": {
            "mean": e.step.mean_seconds,
            "p50": e.step.p50_seconds,
            "p95": e.step.p95_seconds,
            "steps": e.step.steps,
        },
        "tokens_per_second": e.tokens_per_second,
        "memory_bytes": {m.name.removeprefix("device "): m.peak.bytes for m in e.memory},
        "bound": {"lane": e.bound.lane, "seconds": e.bound.seconds, "gap": e.gap},
        "stage_seconds": dict(e.stages),
        "occupancy": dict(e.occupancy),
        "measured_share": e.measured_share,
    }
