"""What would make a stage fit: single changes of how it runs, and whether each suffices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rpeg.cost.execution import Execution, Recompute
from rpeg.cost.memory.breakdown import Footprint, gib_text
from rpeg.errors import InputError


@dataclass(frozen=True)
class Remedy:
    """A single change. peak_bytes: of the fullest phase after it. fits: whether it suffices."""

    change: str
    execution: Execution
    peak_bytes: float
    fits: bool

    def __str__(self) -> str:
        return f"{self.change}: peaks at {gib_text(self.peak_bytes)}"


def remedies(
    execution: Execution, capacity_bytes: float, measure: Callable[[Execution], Footprint]
) -> tuple[Remedy, ...]:
    """Single changes that lower the peak, those that suffice first, then by what they cost in time, least first.

    Of the degrees of one change (smaller micro-batches, more sharding) the smallest that suffices is named.
    measure: the footprint under an execution, such as `train_memory` with the rest of its arguments bound. Changes
    that it refuses with InputError are left out. Nothing that changes what is learned is proposed.
    """
    least = measure(execution).peak.device_bytes
    found: dict[str, Remedy] = {}
    for change, changed in _changes(execution):
        try:
            footprint = measure(changed)
        except InputError:
            continue
        remedy = Remedy(change, changed, footprint.peak.device_bytes, footprint.fits(capacity_bytes))
        before = found.get(_knob(change))
        if remedy.peak_bytes < (before.peak_bytes if before else least) and not (before and before.fits):
            found[_knob(change)] = remedy
    return tuple(sorted(found.values(), key=lambda remedy: not remedy.fits))


def _knob(change: str) -> str:
    """What a change turns, without how far: `micro-batch 4` turns the micro-batch."""
    return change.rstrip("0123456789 ")


def advice(execution: Execution, capacity_bytes: float, measure: Callable[[Execution], Footprint]) -> str:
    """The verdict in words: what peaks, how much is short, and the changes that suffice each on its own."""
    footprint = measure(execution)
    verdict = footprint.verdict(capacity_bytes)
    if footprint.fits(capacity_bytes):
        return verdict
    found = remedies(execution, capacity_bytes, measure)
    enough = [str(remedy) for remedy in found if remedy.fits]
    if enough:
        return f"{verdict}. Any one of these suffices: {'; '.join(enough)}"
    best = min(found, key=lambda remedy: remedy.peak_bytes, default=None)
    return f"{verdict}. No single change suffices" + (f"; the largest step is {best}" if best else "")


def _changes(execution: Execution) -> Iterator[tuple[str, Execution]]:
    """Changes from what costs least time to what costs most."""
    if execution.logits == "materialised":
        yield "logits in chunks", replace(execution, logits="chunked")
    if execution.recompute == "none":
        yield "recompute selective", _recompute(execution, "selective")
    yield from _smaller_pieces(execution)
    if execution.recompute != "full":
        yield "recompute full", _recompute(execution, "full")
    yield from _wider(execution)
    if execution.offload == "none":
        yield "offload the optimizer", replace(execution, offload="optimizer")


def _recompute(execution: Execution, policy: Recompute) -> Execution:
    return replace(execution, recompute=policy)


def _smaller_pieces(execution: Execution) -> Iterator[tuple[str, Execution]]:
    if execution.token_budget:
        for part in (2, 4, 8):
            budget = execution.token_budget // part
            yield f"token budget {budget}", replace(execution, token_budget=budget)
        return
    size = execution.microbatch
    while size > 1:
        size //= 2
        yield f"micro-batch {size}", replace(execution, microbatch=size)


def _wider(execution: Execution) -> Iterator[tuple[str, Execution]]:
    """More sharding on the same devices."""
    p = execution.parallelism
    if p.dp * p.cp > 1:
        for stage in range(p.zero + 1, 4):
            yield f"zero {stage}", replace(execution, parallelism=replace(p, zero=stage))
    if p.shard:
        yield "shard over all replicas", replace(execution, parallelism=replace(p, shard=0))
    if p.dp % 2 == 0:
        for degree in ("cp", "tp"):
            halved = {"dp": p.dp // 2, degree: getattr(p, degree) * 2, "shard": 0}
            if degree == "tp":
                halved["sequence_parallel"] = True
            yield f"{degree} {halved[degree]}", replace(execution, parallelism=replace(p, **halved))
