"""INFERENCE: forward passes over finished samples, on one replica."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.cost.passes import work
from rpeg.cost.passes.communication import collective
from rpeg.cost.passes.cuts import Passes, cut_over
from rpeg.cost.passes.microbatches import MicroBatches, split
from rpeg.cost.passes.timing import Timing
from rpeg.cost.tree import Cost, sequence
from rpeg.plan import Parallelism

Ints = npt.NDArray[np.int64]
WHOLE = Parallelism()


def infer(
    architecture: Architecture,
    prompt_lengths: Ints,
    response_lengths: Ints,
    *,
    microbatch: int,
    logprobs: bool,
    timing: Timing,
    layout: Parallelism = WHOLE,
    sharded: bool = False,
) -> Cost:
    """One forward over these samples; with `logprobs` the lm head over the response tokens, else values alone.

    prompt_lengths, response_lengths: (n,) of this replica's samples. layout: by which the model is cut. sharded: its
    parameters lie in slices (ZeRO-3), which are gathered layer by layer for each micro-batch.
    """
    parts = split(prompt_lengths, response_lengths, microbatch)
    body, *last = forward_parts(architecture, parts, timing, logprobs=logprobs)
    passes = Passes(
        architecture, parts, [body], last[0] if last else None, least_forward(architecture, timing)
    )
    children = cut_over(passes, layout, timing)
    shards = layout.shards * layout.cp if sharded else 1
    if shards > 1:
        children.append(sharding(architecture, "sharded_forward", shards, len(parts), timing))
    return sequence("infer", children)


def forward_parts(
    architecture: Architecture, parts: MicroBatches, timing: Timing, *, logprobs: bool
) -> list[Cost]:
    """The backbone over all micro-batches, then the head."""
    dtype = timing.dtype
    body = work.forward(architecture, parts.rows, parts.length, dtype)
    costs = [timing.cost("forward", "forward", parts.rows, parts.length, work=body)]
    if logprobs:
        last = work.head(architecture, parts.response_tokens, dtype)
        costs.append(timing.cost("head", "head", parts.response_tokens, work=last))
    return costs


def least_forward(architecture: Architecture, timing: Timing) -> float:
    """Seconds of the shortest forward pass."""
    one = np.ones(1)
    return float(
        timing.seconds("forward", one, one, work=work.forward(architecture, one, one, timing.dtype))[0]
    )


def sharding(
    architecture: Architecture, op: str, shards: int, times: int, timing: Timing, gathered: int = 1
) -> Cost:
    """What slices add to `times` micro-batches: as measured under `op`, else all-gathers, `gathered` times each."""
    measured = timing.table(op)
    if measured is None:
        return gathers(architecture, shards, times * gathered, timing)
    seconds = float(measured) * times
    moved = architecture.parameters() * work.BYTES_OF[timing.dtype] * (shards - 1) / shards * times * gathered
    return Cost("gather parameters", seconds, 0.0, moved, "network", seconds, times)


def gathers(architecture: Architecture, shards: int, times: int, timing: Timing) -> Cost:
    """All-gathers of every layer, and of what is not in a layer, `times` each."""
    size = work.BYTES_OF[timing.dtype]
    around = architecture.parameters() - architecture.layers * architecture.layer_parameters
    layer_bytes = architecture.layer_parameters * size
    parts = [
        collective("layers", "all_gather", shards, layer_bytes, timing, times * architecture.layers),
        collective("embedding and head", "all_gather", shards, around * size, timing, times),
    ]
    return sequence("gather parameters", parts)
