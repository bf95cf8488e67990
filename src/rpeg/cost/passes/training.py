"""TRAIN: minibatches × epochs of micro-batches forward and backward, reductions and optimizer steps, on one gang."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.cost.passes import work
from rpeg.cost.passes.communication import collective
from rpeg.cost.passes.host import joining
from rpeg.cost.passes.inference import sharding
from rpeg.cost.passes.microbatches import MicroBatches, concatenate, split
from rpeg.cost.passes.timing import Timing
from rpeg.cost.tree import Cost, sequence

Ints = npt.NDArray[np.int64]

_AGREEMENT_BYTES = 2048.0


def train(
    architecture: Architecture,
    prompt_lengths: Ints,
    response_lengths: Ints,
    *,
    minibatches: Sequence[Sequence[Ints]],
    microbatch: int,
    logprobs: bool,
    timing: Timing,
    zero: int = 0,
) -> Cost:
    """One optimizer step for each of `minibatches`, which name the rows of each rank: minibatches[m][rank].

    prompt_lengths, response_lengths: (n,) of the whole batch. logprobs: the model has an lm head in its loss, else
    a value head. In each minibatch the slowest rank gives the time: the tree shows its work.
    """
    ranks = max((len(minibatch) for minibatch in minibatches), default=1)
    slowest = [
        _slowest(
            architecture,
            [split(prompt_lengths[rows], response_lengths[rows], microbatch) for rows in minibatch],
            timing,
            logprobs,
        )
        for minibatch in minibatches
    ]
    parts = concatenate(slowest)
    children = [joining(int(parts.rows.sum()), timing)]
    children += _forward_backward(architecture, parts, timing, logprobs=logprobs)
    children += _updates(architecture, ranks, len(minibatches), len(parts), zero, timing)
    return sequence("train", children)


def shuffled(
    samples: int, *, minibatches: int, epochs: int, dp: int, seed: int, step: int
) -> list[list[Ints]]:
    """Minibatches of equal size, a new order each epoch, each cut into `dp` shares: a draw as a run makes it."""
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, step], dtype=np.uint64)))
    out = []
    for _ in range(epochs):
        order = generator.permutation(samples)
        out += [list(np.array_split(rows, dp)) for rows in np.array_split(order, minibatches)]
    return out


def _slowest(
    architecture: Architecture, ranks: list[MicroBatches], timing: Timing, logprobs: bool
) -> MicroBatches:
    """The micro-batches of the rank that takes longest over this minibatch."""
    if len(ranks) == 1:
        return ranks[0]

    def seconds(parts: MicroBatches) -> float:
        return sum(cost.seconds for cost in _forward_backward(architecture, parts, timing, logprobs=logprobs))

    return max(ranks, key=seconds)


def _forward_backward(
    architecture: Architecture, parts: MicroBatches, timing: Timing, *, logprobs: bool
) -> list[Cost]:
    dtype = timing.dtype
    body = work.forward_backward(architecture, parts.rows, parts.length, dtype)
    costs = [timing.cost("forward + backward", "forward_backward", parts.rows, parts.length, work=body)]
    if logprobs:
        last = work.head_backward(architecture, parts.response_tokens, dtype)
        costs.append(timing.cost("head", "head_backward", parts.response_tokens, work=last))
    return costs


def _updates(
    architecture: Architecture, ranks: int, updates: int, microbatches: int, zero: int, timing: Timing
) -> list[Cost]:
    """Reduction and optimizer once an update; with ZeRO-3 parameters besides, for each micro-batch."""
    if zero == 3 and ranks > 1:
        return _sharded(architecture, ranks, updates, microbatches, timing)
    local = np.full(updates, architecture.parameters() / (ranks if zero >= 1 else 1))
    costs = [timing.cost("optimizer", "optimizer", local, work=work.optimizer(local))]
    if ranks == 1:
        return costs
    size = architecture.parameters() * work.BYTES_OF[timing.dtype]
    costs.append(_agreement(ranks, timing))
    if zero == 0:
        return [*costs, collective("reduce gradients", "all_reduce", ranks, size, timing, updates)]
    return [
        *costs,
        collective("reduce gradients", "reduce_scatter", ranks, size, timing, updates),
        collective("gather parameters", "all_gather", ranks, size, timing, updates),
    ]


def _sharded(
    architecture: Architecture, ranks: int, updates: int, microbatches: int, timing: Timing
) -> list[Cost]:
    size = architecture.parameters() * work.BYTES_OF[timing.dtype]
    costs = [
        _agreement(ranks, timing),
        sharding(architecture, "sharded_backward", ranks, microbatches, timing, gathered=2),
    ]
    measured = timing.table("sharded_update")
    if measured is not None:
        seconds = float(measured) * updates
        return [*costs, Cost("reduce and update", seconds, 0.0, size * updates, "network", seconds, updates)]
    layer = architecture.layer_parameters * work.BYTES_OF[timing.dtype]
    around = size - architecture.layers * layer
    reduce = [
        collective("layers", "reduce_scatter", ranks, layer, timing, updates * architecture.layers),
        collective("embedding and head", "reduce_scatter", ranks, around, timing, updates),
    ]
    local = np.full(updates, architecture.parameters() / ranks)
    optimizer = timing.cost("optimizer", "optimizer", local, work=work.optimizer(local))
    return [*costs, sequence("reduce gradients", reduce), optimizer]


def _agreement(ranks: int, timing: Timing) -> Cost:
    """Counts of micro-batches before and metrics after: a small all-gather each."""
    return collective("agree", "all_gather", ranks, _AGREEMENT_BYTES, timing, 2)
