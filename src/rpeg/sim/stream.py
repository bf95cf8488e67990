"""How a generator's responses leave it in base parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rpeg.ir import Unit
from rpeg.plan import BasePart, Plan, stream_chunks
from rpeg.sim.costs import Batch, Completions


def departures(
    plan: Plan, stage: str, parts: Sequence[BasePart], batch: Batch, done: Completions
) -> tuple[tuple[float, tuple[int, ...]], ...]:
    """(seconds from the start, positions in the batch) for each of one replica's base parts, in leaving order.

    A unit leaves with its last response; units leave in the order of that, ties in the order of the batch.
    """
    queue = [i for unit in _units(plan, stage, batch, done) for i in unit]
    left = []
    for part in parts:
        members, queue = tuple(queue[: part.samples]), queue[part.samples :]
        left.append((max((done.offset_seconds[i] for i in members), default=done.seconds), members))
    return tuple(left)


def _units(plan: Plan, stage: str, batch: Batch, done: Completions) -> list[list[int]]:
    """Positions of the samples of each unit, units and samples in the order of completion."""
    offsets = done.offset_seconds
    order = sorted(range(len(batch.ids)), key=lambda i: (offsets[i], i))
    units: Mapping[Unit, int] = {Unit.GROUP: plan.workload.samples_per_prompt}
    size = max((units.get(chunk.unit, 1) for chunk in stream_chunks(plan.graph, stage)), default=1)
    groups: dict[int, list[int]] = {}
    for i in order:
        groups.setdefault(batch.ids[i] // size, []).append(i)
    return sorted(groups.values(), key=lambda members: offsets[members[-1]])
