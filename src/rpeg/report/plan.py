"""Plans and their estimates as people read them, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from rpeg.plan import ItemKind, plan_to_json
from rpeg.report import hardware
from rpeg.report.tables import percent, table
from rpeg.search import Candidate, Misfit, Problem, Ranked, devices_in_short
from rpeg.sim import DeviceMemory, Estimate
from rpeg.units import bytes_text, count_text, seconds_text

COLUMNS = (">#", "plan", ">parts", ">stale", ">step p50", ">p95", ">tok/s", ">memory", ">gap")


LEGEND = (
    "colocated: all stages on all devices · split: generation and training apart · apart: actor and critic apart",
    "parts: samples that leave generation together, to be assessed meanwhile · gap: to the tightest bound",
)
SHOWN = 10
_SHOWN_SHARE = 0.005
"""Of the critical cycle: less is not worth a word."""


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
    """A line for the constructions that cannot be had for one reason."""
    by_reason: dict[str, list[str]] = {}
    for misfit in found:
        by_reason.setdefault(misfit.reason, []).append(misfit.name)
    for reason, names in by_reason.items():
        more = f" (and {len(names) - 1} others like it)" if len(names) > 1 else ""
        yield f"left out: {names[0]}{more}: {reason}"


def summary(candidate: Candidate, problem: Problem) -> Iterator[str]:
    """The chosen plan in a few lines: who runs where, what it rests on, what it changes."""
    e = candidate.estimate
    for devices, stages in devices_in_short(candidate.plan):
        yield f"devices {devices}: {stages}"
    if not problem.is_local:
        yield from hardware.layouts(candidate)
    yield f"transforms: {', '.join(candidate.plan.applied) or 'none'}"
    yield f"changes what is learned: {', '.join(candidate.changes) or 'no'}"
    yield (
        f"step {seconds_text(e.step.mean_seconds)} (mean of {e.step.steps} drawn steps); another order could bring at "
        f"most {percent(e.gap_to(e.bounds.of_any_order))}"
    )
    yield from limits(e)
    yield from bounds(e)
    own = [share for lane, share in e.occupancy.items() if lane.startswith("device")]
    busy = percent(sum(own) / max(1, len(own)))
    yield f"devices are busy {busy} of the step and do {percent(e.mfu)} of the FLOP that they could in it (MFU)"
    if not problem.is_local:
        yield hardware.price(candidate)
        yield hardware.headroom(e)
        yield from hardware.tight(e)
    yield f"{percent(e.measured_share)} of the seconds rest on measurement"
    yield from (f"assumed: {sentence}" for sentence in problem.assumptions)


def bounds(estimate: Estimate) -> Iterator[str]:
    """A line for each bound, with the gap to it."""
    reasons = {
        "lane": "{} is busy so long",
        "dependencies": "on any number of devices, for {} wait for each other",
        "work": "all devices of {} need so long for the work at its best, whatever the plan",
    }
    for bound in estimate.bounds.all:
        why = reasons[bound.by].format(bound.what)
        yield f"at least {seconds_text(bound.seconds)}: {why} (gap {percent(estimate.gap_to(bound))})"


def limits(estimate: Estimate) -> Iterator[str]:
    """What limits the step: the shares that stages have in the critical cycle."""
    cycle = estimate.critical.cycle
    total = sum(link.seconds for link in cycle)
    shares: dict[str, float] = {}
    for link in cycle:
        name = link.src.name if link.src.kind is ItemKind.RUN else f"{link.src.kind} {link.src.name}"
        shares[name] = shares.get(name, 0.0) + link.seconds
    if total:
        parts = (f"{name} {percent(s / total)}" for name, s in shares.items() if s >= _SHOWN_SHARE * total)
        yield f"what limits the step: {', '.join(parts)}"


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
        "bound": {"by": e.bound.by, "what": e.bound.what, "seconds": e.bound.seconds, "gap": e.gap},
        "bounds": [
            {"by": b.by, "what": b.what, "seconds": b.seconds, "gap": e.gap_to(b)} for b in e.bounds.all
        ],
        "limits": list(limits(e)),
        "stage_seconds": dict(e.stages),
        "occupancy": dict(e.occupancy),
        "mfu": e.mfu,
        "measured_share": e.measured_share,
    }
