"""How layers and ends fall on pipeline stages, and what filling the pipeline and handing on in it take.

Seconds of one micro-batch may be arrays, of many at once: then so are the answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.kernels import Amount
from rpeg.cost.machine import Machine
from rpeg.cost.network import collective_seconds
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.training.microbatches import MicroBatches

# Of quotients of times that are whole numbers but for it.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Loads:
    """The slowest stage and the others.

    layers: of the slowest stage. first, last: 1.0 where it holds the embedding, the head. fill: seconds that one
    micro-batch spends on all other stages.
    """

    layers: Amount
    first: Amount
    last: Amount
    fill: Amount


def loads_of(
    architecture: Architecture,
    execution: Execution,
    kinds: Sequence[Amount],
    embedding: Amount,
    head: Amount,
    *,
    balanced: bool = False,
) -> Loads:
    """The loads of stages. kinds: seconds of one layer of each of the architecture's groups, one micro-batch.

    Layers that the stages divide are spread evenly, unless stages are balanced by their time. Else whole layers are
    laid out so that the slowest stage, with the embedding on the first and the head on the last, is as fast as can be.
    """
    stages, layers = execution.parallelism.pp, architecture.layers
    if stages == 1:
        return Loads(float(layers), 1.0, 1.0, 0.0)
    total = sum(seconds * count for (_, count), seconds in zip(architecture.groups, kinds, strict=True))
    mean = total / layers
    if layers % (stages * execution.parallelism.vpp) == 0 and not balanced:
        each = layers / stages
        held = [(each * mean + seconds, each, *end) for seconds, *end in _ends(embedding, head, stages)]
        one = _chosen(held, np.argmax([seconds for seconds, *_ in held], axis=0))
    else:
        one = _fastest(mean, embedding, head, layers, stages)
    seconds, most, first, last = one
    return Loads(most, first, last, fill=total + embedding + head - seconds)


_Stage = tuple[Amount, Amount, Amount, Amount]
"""Of a stage: seconds, layers, and 1.0 where it holds the embedding, the head."""


def _ends(embedding: Amount, head: Amount, stages: int) -> list[tuple[Amount, float, float]]:
    """(seconds, first, last) of what stages have beside layers."""
    ends = [(embedding, 1.0, 0.0), (head, 0.0, 1.0)]
    return ends + [(np.zeros_like(head), 0.0, 0.0)] * (stages > 2)


def _chosen(stages: Sequence[_Stage], which: Amount) -> _Stage:
    seconds, layers, first, last = (np.choose(which, column) for column in zip(*stages, strict=True))
    return seconds, layers, first, last


def _fastest(mean: Amount, embedding: Amount, head: Amount, layers: int, stages: int) -> _Stage:
    """The slowest stage where whole layers are laid out as well as can be.

    The least of the times that a stage can have, whole layers with or without an end, in which all stages together have
    room for all layers. The very least, so that more work on any of them never makes the whole faster.
    """
    ends = _ends(embedding, head, stages)
    if not np.all(mean):  # layers take no time: an end is the slowest
        bare = [(seconds, 0.0, *end) for seconds, *end in ends[:2]]
        return _chosen(bare, np.argmax([seconds for seconds, *_ in bare], axis=0))
    least = np.maximum(np.maximum((layers * mean + embedding + head) / stages, embedding), head)
    found = []
    for end, first, last in ends:
        count = np.maximum(0.0, np.ceil((least - end) / mean - _ROUNDING))
        while np.any(full := _room(end + count * mean, mean, embedding, head, stages) < layers):
            count = count + full
        found.append((end + count * mean, count, first, last))
    return _chosen(found, np.argmin([seconds for seconds, *_ in found], axis=0))


def _room(seconds: Amount, mean: Amount, embedding: Amount, head: Amount, stages: int) -> Amount:
    """Layers that all stages have room for when none takes longer than this."""

    def held(free: Amount) -> Amount:
        return np.maximum(np.floor(free / mean + _ROUNDING), 0.0)

    return (stages - 2) * held(seconds) + held(seconds - embedding) + held(seconds - head)


def hand_over(
    architecture: Architecture, execution: Execution, machine: Machine, work: MicroBatches, ways: int
) -> tuple[Amount, Amount]:
    """(seconds, bytes) that stages hand on and that do not hide behind their work. ways: forward, or there and back.

    Interleaved stages post sends early; plain 1F1B waits for each (Narayanan et al. 2021, arXiv:2104.04473, 2.2).
    """
    layout = execution.parallelism
    if layout.pp == 1:
        return 0.0, 0.0
    size = work.tokens / layout.cp * architecture.hidden * BYTES_OF[execution.precision.activations]
    size = size / layout.tp if layout.sequence_parallel else size
    stride = layout.tp * layout.cp * layout.dp
    hop = collective_seconds("send", size, 2, machine, stride=stride)
    hops = ways * ((layout.pp - 1) + (work.count if layout.vpp == 1 else 0))
    return hop * hops, size * ways * work.count
