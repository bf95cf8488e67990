"""How a generator's responses leave it in base parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rpeg.ir import Graph, Unit
from rpeg.plan import BasePart, Plan, stream_chunks
from rpeg.sim.costs import Batch, Completions, Floats, Ints
from rpeg.workload import Workload


def departures(
    plan: Plan, stage: str, parts: Sequence[BasePart], batch: Batch, done: Completions
) -> tuple[tuple[float, tuple[int, ...]], ...]:
    """(seconds from the start, positions in the batch) for each of one replica's base parts, in leaving order.

    A unit leaves with its last response; units leave in the order of that, ties in the order of the batch.
    """
    offsets = np.asarray(done.offset_seconds, dtype=np.float64)
    queue, ends = _leaving(batch, offsets, unit_size(plan.graph, plan.workload, stage)), _ends(parts)
    seconds = _part_seconds(offsets[queue], ends, done.seconds)
    members = (tuple(part.tolist()) for part in np.split(queue, ends)[: len(parts)])
    return tuple(zip(seconds, members, strict=True))


def part_seconds(
    parts: Sequence[BasePart], batch: Batch, offsets: Floats, seconds: float, unit: int
) -> list[float]:
    """When each of one replica's base parts leaves, from the offsets of the responses. unit: samples of a unit."""
    return _part_seconds(offsets[_leaving(batch, offsets, unit)], _ends(parts), seconds)


def unit_size(graph: Graph, workload: Workload, stage: str) -> int:
    """Samples that leave a generator together: of a group where groups flow on."""
    units: Mapping[Unit, int] = {Unit.GROUP: workload.samples_per_prompt}
    return max((units.get(chunk.unit, 1) for chunk in stream_chunks(graph, stage)), default=1)


def _ends(parts: Sequence[BasePart]) -> Ints:
    return np.cumsum([part.samples for part in parts], dtype=np.int64)


def _part_seconds(left: Floats, ends: Ints, seconds: float) -> list[float]:
    """left: offsets in leaving order. seconds: of parts without a response."""
    found, start = [], 0
    for end in np.minimum(ends, len(left)).tolist():
        found.append(float(left[start:end].max()) if end > start else seconds)
        start = end
    return found


def _leaving(batch: Batch, offsets: Floats, size: int) -> Ints:
    """Positions of the samples in the order in which they leave, unit after unit."""
    order = np.argsort(offsets, kind="stable")
    if size == 1:
        return order
    _, first, unit = np.unique(batch.numbers[order] // size, return_index=True, return_inverse=True)
    last = np.zeros(len(first))
    np.maximum.at(last, unit, offsets[order])
    return order[np.lexsort((first[unit], last[unit]))]
