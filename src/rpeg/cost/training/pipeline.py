"""How layers and ends fall on pipeline stages, and what filling the pipeline takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    architecture: Architecture, execution: Execution, kinds: Sequence[float], embedding: float, head: float
) -> Loads:
    """The loads of stages. kinds: seconds of one layer of each of the architecture's groups, one micro-batch.

    Layers that the stages divide are spread evenly. Else the stages between have one more than the ends, which hold
    embedding and head beside theirs.
    """
    stages, layers = execution.parallelism.pp, architecture.layers
    total = sum(seconds * count for (_, count), seconds in zip(architecture.groups, kinds, strict=True))
    mean = total / layers
    if stages == 1:
        return Loads(float(layers), 1.0, 1.0, 0.0)
    inner = -(-layers // stages)
    ends = layers / stages if layers % stages == 0 else (layers - inner * (stages - 2)) / 2
    if ends < 1:
        inner, ends = layers / stages, layers / stages
    choices = [
        (ends * mean + embedding, Loads(ends, 1.0, 0.0, 0.0)),
        (ends * mean + head, Loads(ends, 0.0, 1.0, 0.0)),
    ]
    if stages > 2:
        choices.append((inner * mean, Loads(float(inner), 0.0, 0.0, 0.0)))
    seconds, slowest = max(choices, key=lambda choice: choice[0])
    return Loads(slowest.layers, slowest.first, slowest.last, total + embedding + head - seconds)
