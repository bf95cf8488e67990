"""How layers and ends fall on pipeline stages, and what filling the pipeline takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution


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
        counts = [(layers / stages, layers / stages, layers / stages)]
    else:
        counts = _layouts(layers, stages, head / mean if mean else 0.0)
    loads = [_slowest(mean, embedding, head, *count, stages) for count in counts]
    seconds, slowest = min(loads, key=lambda load: load[0])
    return replace(slowest, fill=total + embedding + head - seconds)


def _layouts(layers: int, stages: int, head: float) -> list[tuple[float, float, float]]:
    """(first, between, last) layers of stages, where some of the ends' layers move to the others.

    head: what it takes, in layers. Near the best, the last stage has so many fewer than the others, or a few more or
    less; the first has as many as those between, or one fewer for the embedding.
    """
    most, others = -(-layers // stages), stages - 1
    fewer = int(head * others / stages)
    out: list[tuple[float, float, float]] = []
    for last in {min(max(most - fewer + step, 0), most) for step in (-2, -1, 0, 1)}:
        even = -(-(layers - last) // others)
        if stages == 2:
            out.append((even, 0, last))
            continue
        out += [
            (first, -(-(layers - last - first) // (others - 1)), last) for first in (even, max(0, even - 1))
        ]
    return out


def _slowest(
    mean: float, embedding: float, head: float, first: float, between: float, last: float, stages: int
) -> tuple[float, Loads]:
    choices = [
        (first * mean + embedding, Loads(first, 1.0, 0.0, 0.0)),
        (last * mean + head, Loads(last, 0.0, 1.0, 0.0)),
    ]
    if stages > 2:
        choices.append((between * mean, Loads(float(between), 0.0, 0.0, 0.0)))
    return max(choices, key=lambda choice: choice[0])
