"""TRAIN: minibatches × epochs of micro-batches forward and backward, reductions and optimizer steps, on one gang."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.cost.passes import work
from rpeg.cost.passes.communication import collective
from rpeg.cost.passes.cuts import Passes, cut_over
from rpeg.cost.passes.host import joining
from rpeg.cost.passes.inference import WHOLE, least_forward, sharding
from rpeg.cost.passes.microbatches import MicroBatches, concatenate, split
from rpeg.cost.passes.timing import Timing
from rpeg.cost.tree import Cost, sequence
from rpeg.plan import Parallelism

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
    layout: Parallelism = WHOLE,
    recompute: str = "none",
    adapters: float = 0.0,
) -> Cost:
    """One optimizer step for each of `minibatches`, which name the rows of each replica: minibatches[m][replica].

    prompt_lengths, response_lengths: (n,) of the whole batch. logprobs: the model has an lm head in its loss, else
    a value head. layout: by which the model is cut and its state sharded. recompute: none, selective or full. adapters:
    parameters that are trained instead of the model's, which then get no gradients: a pass takes two thirds, and what
    the adapters add. In each minibatch the slowest replica gives the time: the tree shows its work.
    """
    way = _Way(architecture, layout, recompute, logprobs, adapters, timing)
    slowest = [
        way.slowest([split(prompt_lengths[rows], response_lengths[rows], microbatch) for rows in minibatch])
        for minibatch in minibatches
    ]
    parts = concatenate(slowest)
    children = [joining(int(parts.rows.sum()), timing)]
    children += way.passes(parts, len(minibatches))
    share = adapters / architecture.parameters() if adapters else 1.0
    children += _updates(architecture, layout, share, len(minibatches), len(parts), timing)
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


@dataclass(frozen=True)
class _Way:
    """How passes run forward and backward."""

    architecture: Architecture
    layout: Parallelism
    recompute: str
    logprobs: bool
    adapters: float
    timing: Timing

    def slowest(self, replicas: list[MicroBatches]) -> MicroBatches:
        """The micro-batches of the replica that takes longest over a minibatch."""
        if len(replicas) == 1:
            return replicas[0]
        return max(replicas, key=lambda parts: sum(cost.seconds for cost in self.passes(parts, 1)))

    def passes(self, parts: MicroBatches, runs: int) -> list[Cost]:
        """Over all micro-batches of so many minibatches."""
        timing, dtype = self.timing, self.timing.dtype
        shape = parts.rows, parts.length
        both = work.forward_backward(self.architecture, *shape, dtype)
        layers = [timing.cost("forward + backward", "forward_backward", *shape, work=both)]
        if self.recompute != "none":
            layers.append(self._again(parts))
        last = work.head_backward(self.architecture, parts.response_tokens, dtype)
        head = (
            timing.cost("head", "head_backward", parts.response_tokens, work=last) if self.logprobs else None
        )
        if self.adapters:
            part = 2 / 3 + self.adapters / self.architecture.parameters()
            layers[0], head = layers[0].scaled(part), head.scaled(2 / 3) if head else None
        least = 3 * least_forward(self.architecture, timing)
        again = int(self.recompute == "full")
        made = Passes(self.architecture, parts, layers, head, least, runs, backward=True, again=again)
        return cut_over(made, self.layout, timing)

    def _again(self, parts: MicroBatches) -> Cost:
        """The forward pass of layers once more, or that of attention alone."""
        forward = work.forward(self.architecture, parts.rows, parts.length, self.timing.dtype)
        cost = self.timing.cost("recompute", "forward", parts.rows, parts.length, work=forward)
        if self.recompute == "full" or not cost.flops:
            return cost
        tokens = parts.padded_tokens * work.layer_flops_per_token(self.architecture)
        return cost.scaled(1 - tokens / cost.flops)


def _updates(
    architecture: Architecture,
    layout: Parallelism,
    share: float,
    updates: int,
    microbatches: int,
    timing: Timing,
) -> list[Cost]:
    """Reduction and optimizer once an update; with ZeRO-3 parameters besides, for each micro-batch.

    share: of the parameters, that is trained.
    """
    ranks, zero = layout.dp * layout.cp, layout.zero
    parts = layout.tp * layout.pp
    if zero == 3 and ranks > 1:
        sharded = _sharded(architecture, ranks, updates, microbatches, timing)
        return [cost.scaled(1 / parts) for cost in sharded]
    held = architecture.parameters() * share / parts
    local = np.full(updates, held / (ranks if zero >= 1 else 1))
    costs = [timing.cost("optimizer", "optimizer", local, work=work.optimizer(local))]
    if ranks == 1:
        return costs
    size = held * work.BYTES_OF[timing.dtype]
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
