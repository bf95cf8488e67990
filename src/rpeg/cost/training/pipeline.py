"""How layers and ends fall on pipeline stages, and what filling the pipeline takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution

# Of quotients of times that are whole numbers but for it.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Loads:
    """The slowest stage and the others.

    layers: of the slowest stage. first, last: 1.0 where it holds the embedding, the head. fill: seconds that one
    micro-batch spends on all other stages.
    """

    layers: float
    first: float
    last: float
    fill: float


def loads_of(
    architecture: Architecture,
    execution: Execution,
    kinds: Sequence[float],
    embedding: float,
    head: float,
    *,
    balanced: bool = False,
) -> Loads:
    """The loads of stages. kinds: seconds of one layer of each of the architecture's groups, one micro-batch.

    Layers that the stages divide are spread evenly, unless stages are balanced by their time. Else whole layers are
    laid out so that the slowest stage, with the embedding on the first and the head on the last, is as fast as can be.
    """
    stages, layers = execution.parallelism.pp, architecture.layers
    total = sum(seconds * count for (_, count), seconds in zip(architecture.groups, kinds, strict=True))
    mean = total / layers
    if stages == 1:
        return Loads(float(layers), 1.0, 1.0, 0.0)
    if layers % (stages * execution.parallelism.vpp) == 0 and not balanced:
        each = layers / stages
        held = [(each * mean + embedding, each, 1.0, 0.0), (each * mean + head, each, 0.0, 1.0)]
        held += [(each * mean, each, 0.0, 0.0)] if stages > 2 else []
        seconds, most, first, last = max(held, key=lambda one: one[0])
    else:
        seconds, most, first, last = _fastest(mean, embedding, head, layers, stages)
    return Loads(most, first, last, fill=total + embedding + head - seconds)


def _fastest(
    mean: float, embedding: float, head: float, layers: int, stages: int
) -> tuple[float, float, float, float]:
    """(seconds, layers, first, last) of the slowest stage where whole layers are laid out as well as can be.

    The least of the times that a stage can have, whole layers with or without an end, in which all stages together have
    room for all layers. The very least, so that more work on any of them never makes the whole faster.
    """
    if not mean:
        return max((embedding, 0.0, 1.0, 0.0), (head, 0.0, 0.0, 1.0))
    ends = [(embedding, 1.0, 0.0), (head, 0.0, 1.0)] + [(0.0, 0.0, 0.0)] * (stages > 2)
    least = max((layers * mean + embedding + head) / stages, embedding, head)
    found = []
    for end, first, last in ends:
        count = max(0, math.ceil((least - end) / mean - _ROUNDING))
        while _room(end + count * mean, mean, embedding, head, stages) < layers:
            count += 1
        found.append((end + count * mean, float(count), first, last))
    return min(found, key=lambda one: one[0])


def _room(seconds: float, mean: float, embedding: float, head: float, stages: int) -> int:
    """Layers that all stages have room for when none takes longer than this."""
    return (
        (stages - 2) * int(seconds / mean + _ROUNDING)
        + max(0, int((seconds - embedding) / mean + _ROUNDING))
        + max(0, int((seconds - head) / mean + _ROUNDING))
    )
