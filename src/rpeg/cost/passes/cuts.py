"""What a pass takes where several ranks share it: their part of the work, and what they send each other.

From the measured pass of a whole model: what a pass takes at least, whatever its shape, every rank takes; the rest is
divided. Beside it stand the collectives that each layer makes, at the speed of the link or as measured. An exchange of
heads (all-to-all) counts as an all-gather of the same bytes: each rank receives (p - 1) / p of them in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.cost.passes.communication import collective_seconds, collectives
from rpeg.cost.passes.microbatches import MicroBatches
from rpeg.cost.passes.timing import Timing
from rpeg.cost.passes.work import BYTES_OF
from rpeg.cost.tree import Cost, sequence
from rpeg.plan import Parallelism

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Passes:
    """Passes of a whole model over some micro-batches, in `runs` that each fill and drain a pipeline.

    layers: costs of all layers. head: of what follows them, where anything does. least_seconds: what one pass over the
    layers takes at least. backward: whether there is a backward pass, too. again: forward passes that it repeats.
    """

    architecture: Architecture
    parts: MicroBatches
    layers: Sequence[Cost]
    head: Cost | None
    least_seconds: float
    runs: int = 1
    backward: bool = False
    again: int = 0


def cut_over(passes: Passes, layout: Parallelism, timing: Timing) -> list[Cost]:
    """What one rank of the slowest pipeline stage takes; the passes themselves where nothing is cut."""
    whole = [*passes.layers, *([passes.head] if passes.head else [])]
    if (layout.devices_per_replica == 1 and layout.ep == 1) or not len(passes.parts):
        return whole
    ranks, count = layout.tp * layout.cp, len(passes.parts)
    shares = sum(cost.seconds for cost in passes.layers) or 1.0
    least = passes.least_seconds * count
    layers = [spread(cost, least * cost.seconds / shares, ranks) for cost in passes.layers]
    head = passes.head.scaled(1 / ranks) if passes.head else None
    stages = list(_stages(passes.architecture.layers, layout))
    made = [_stage(passes, layers, head, layout, timing, held, end) for held, end in stages]
    slowest = max(made, key=_seconds)
    if layout.pp == 1:
        return slowest
    made.remove(slowest)
    bubble = sequence("pipeline fill and drain", [cost for stage in made for cost in stage])
    return [*slowest, bubble.scaled(passes.runs / (count * layout.vpp))]


def _stages(layers: int, layout: Parallelism) -> Iterator[tuple[int, bool]]:
    """(layers, whether it is the last) of each stage, as `backends.training.parallel.pipeline` deals them."""
    least, more = divmod(layers, layout.pp * layout.vpp)
    for stage in range(layout.pp):
        extra = sum(chunk * layout.pp + stage < more for chunk in range(layout.vpp))
        yield least * layout.vpp + extra, stage == layout.pp - 1


def _stage(
    passes: Passes,
    layers: Sequence[Cost],
    head: Cost | None,
    layout: Parallelism,
    timing: Timing,
    held: int,
    last: bool,
) -> list[Cost]:
    share = held / passes.architecture.layers
    own = [cost.scaled(share) for cost in layers]
    return [*own, *([head] if head and last else []), *_sent(passes, layout, timing, held, last)]


def _sent(passes: Passes, layout: Parallelism, timing: Timing, layers: int, last: bool) -> Iterator[Cost]:
    """What a rank with so many layers exchanges with the others over all micro-batches."""
    a, size = passes.architecture, BYTES_OF[timing.dtype]
    tokens = passes.parts.rows * passes.parts.length / layout.cp
    ways = 1 + passes.backward
    if layout.tp > 1:  # attention and feed-forward end with a sum each, and begin with one on the way back
        each = 2 * layers * (ways + passes.again)
        yield collectives("tensor sums", "all_reduce", layout.tp, tokens * a.hidden * size, timing, each)
        if passes.head and last:
            rows = passes.parts.response_tokens / layout.cp
            sums = rows * (3 * 4 + (a.hidden * size if passes.backward else 0))
            yield collectives("vocabulary sums", "all_reduce", layout.tp, sums, timing, 3)
    if layout.cp > 1:  # queries, keys, values and what attention gives
        width = 2 * (a.query_width + a.kv_width) / layout.tp
        each = layers * (ways + passes.again)
        exchanged = tokens * width * size
        yield collectives("exchange heads", "all_gather", layout.cp, exchanged, timing, each)
    if layout.ep > 1 and a.experts is not None:  # tokens to the experts that they chose, and back
        routed = tokens * a.experts.active * a.hidden * size
        each = 2 * layers * (ways + passes.again)
        yield collectives("route tokens", "all_gather", layout.ep, routed, timing, each)
    if layout.pp > 1:
        yield _handed_on(tokens * a.hidden * size, ways * layout.vpp, timing)


def _handed_on(size_bytes: Floats, ways: int, timing: Timing) -> Cost:
    """Hidden states to the next stage, and their gradients back."""
    assert timing.link is not None
    moved, count = float(size_bytes.sum()) * ways, len(size_bytes) * ways
    seconds = count * timing.link.latency_seconds + moved / timing.link.bandwidth_bytes_per_second
    return Cost("hand on", seconds, 0.0, moved, "network", count=count)


def spread(cost: Cost, least_seconds: float, ranks: int) -> Cost:
    """A cost's share of a rank, of which it takes `least_seconds` whatever the number of ranks."""
    more = max(0.0, cost.seconds - least_seconds)
    return retimed(cost, min(cost.seconds, least_seconds + more / ranks), ranks)


def retimed(cost: Cost, seconds: float, ranks: int) -> Cost:
    """One rank's part of the work, in so many seconds; as much of them measured as of the whole."""
    return replace(cost.scaled(1 / ranks), seconds=seconds, measured_seconds=cost.measured_share * seconds)


def step_seconds(
    architecture: Architecture,
    whole: Floats,
    least_seconds: float,
    tokens: Floats,
    rows: Floats,
    tp: int,
    timing: Timing,
) -> Floats:
    """(n,) seconds of passes of an engine that `tp` ranks share.

    whole: (n,) of one rank alone. tokens: (n,) that pass the layers. rows: (n,) whose logits are gathered.
    """
    if tp == 1:
        return whole
    own = np.minimum(whole, least_seconds + np.maximum(0.0, whole - least_seconds) / tp)
    size = BYTES_OF[timing.dtype]
    sums = collective_seconds("tensor sums", "all_reduce", tp, tokens * architecture.hidden * size, timing)
    logits = rows * architecture.vocabulary * size
    gathered = collective_seconds("gather logits", "all_gather", tp, logits, timing)
    return np.asarray(own + (2 * architecture.layers + 1) * sums + gathered)


def _seconds(costs: Sequence[Cost]) -> float:
    return sum(cost.seconds for cost in costs)
