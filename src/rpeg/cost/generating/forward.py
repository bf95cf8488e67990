"""`Forward`: seconds of one pass of a serving replica, kernel by kernel, link by link, with the host's share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.architecture.model import FeedForward, Layer, Mixer
from rpeg.cost.execution import Execution
from rpeg.cost.generating.layers import ACTIVATION_BYTES, Part, Rank
from rpeg.cost.generating.layout import Layout, layout_of
from rpeg.cost.generating.load import Load
from rpeg.cost.kernels import Amount, Kernels, Timed, kernels_of
from rpeg.cost.kernels.timed import largest
from rpeg.cost.kernels.work import stored
from rpeg.cost.machine import Machine
from rpeg.cost.network import Collective, collective_seconds
from rpeg.cost.traits import ServingTraits
from rpeg.cost.tree import Bound, Cost

Floats = npt.NDArray[np.float64]

# Sizes at which links are asked, in tokens; between them seconds are interpolated.
_TOKENS = np.concatenate([[0.0], 4.0 ** np.arange(0, 10)])


@dataclass(frozen=True, slots=True)
class Leaf:
    """Seconds, FLOP and bytes of one sort of work in a pass, over all layers. Numbers or arrays.

    bound: None leaves it to the work. balance: FLOP for each byte of memory above which the device's arithmetic binds.
    """

    name: str
    bound: Bound | None
    seconds: Amount
    flops: Amount
    bytes: Amount
    measured: bool
    balance: float = 0.0

    def times(self, factor: Amount) -> Leaf:
        """So many times this."""
        seconds, flops, moved = self.seconds * factor, self.flops * factor, self.bytes * factor
        return Leaf(self.name, self.bound, seconds, flops, moved, self.measured, self.balance)

    @property
    def number(self) -> Leaf:
        """Of the only one of many passes."""
        seconds, flops, moved = (float(np.ravel(each)[0]) for each in (self.seconds, self.flops, self.bytes))
        return Leaf(self.name, self.bound, seconds, flops, moved, self.measured, self.balance)

    def at(self, own: slice) -> Leaf:
        """Of some of many passes."""
        seconds, flops, moved = (
            each[own] if isinstance(each, np.ndarray) else each
            for each in (self.seconds, self.flops, self.bytes)
        )
        return Leaf(self.name, self.bound, seconds, flops, moved, self.measured, self.balance)

    def cost(self, seconds: float, flops: float, moved: float) -> Cost:
        """A leaf of a tree with these sums of it."""
        bound: Bound = self.bound or ("compute" if flops > self.balance * moved else "memory")
        return Cost(self.name, seconds, flops, moved, bound, seconds if self.measured else 0.0)


@dataclass(frozen=True)
class Forward:
    """Passes of one replica.

    graphs: decode steps are replayed as captured graphs; else the host launches every kernel of them.
    overlapped: the host prepares a step while the device is at the one before.
    links: seconds of each kind of message at `_TOKENS` tokens, and bytes of a token in it.
    balance: see `Leaf`.
    """

    architecture: Architecture
    layout: Layout
    rank: Rank
    machine: Machine
    graphs: bool
    overlapped: bool
    links: Mapping[Collective, tuple[Floats, float]]
    balance: float

    @property
    def serving(self) -> ServingTraits:
        """What the engine adds."""
        return self.machine.stack.serving

    def seconds(self, load: Load) -> Amount:
        """Of passes with this load, from the host's decision to the sampled tokens."""
        total: Amount = 0.0
        for leaf in self.leaves(load):
            total = total + leaf.seconds
        return total

    def leaves(self, load: Load) -> list[Leaf]:
        """The parts of such a pass; their seconds add up.

        Pipeline stages work on micro-batches. Interleaved, all stages are busy, and every sequence has its token after
        as long as one micro-batch takes through all stages; serial, one micro-batch follows the other, and each reads
        the weights again.
        """
        serial = self.serving.pipeline == "serial" and self.layout.pp > 1
        parts = np.clip(load.outputs, 1.0, self.layout.pp) if serial else self.layout.pp
        own = _split(load, self.layout.attention_dp, parts)
        summed = self._device(own, load.tokens / parts)
        leaves = [self._leaf(name, timed, bound) for name, (timed, bound) in summed.items()]
        if serial:
            leaves = [replace(leaf, seconds=leaf.seconds * parts) for leaf in leaves]
        device: Amount = 0.0
        for leaf in leaves:
            device = device + leaf.seconds
        return [*leaves, self._host(load, device)]

    def _device(self, own: Load, pooled: Amount) -> dict[str, tuple[list[tuple[float, Timed]], Bound | None]]:
        """Every kernel and message by name, each with the number of layers that have it."""
        out: dict[str, tuple[list[tuple[float, Timed]], Bound | None]] = {}
        for count, parts in self._layers(own, pooled):
            for part in parts:
                out.setdefault(part.name, ([], None))[0].append((count, part.timed))
        for layer, number in self.architecture.groups:
            for part in self._messages(layer, own, pooled):
                out.setdefault(part.name, ([], "network"))[0].append((float(number), part.timed))
        for part in self.rank.head(own.outputs):
            out.setdefault(part.name, ([], None))[0].append((1.0, part.timed))
        for part in self._ends(own):
            out.setdefault(part.name, ([], "network"))[0].append((1.0, part.timed))
        return out

    def _layers(self, own: Load, pooled: Amount) -> Iterator[tuple[float, Iterator[Part]]]:
        """Kernels of each kind of mixer and of feed-forward, each with the number of layers that have it."""
        mixers, feed_forwards = self.kinds
        for mixer, count in mixers:
            yield count, self.rank.mixer(mixer, own)
        for kind, count in feed_forwards:
            yield count, self.rank.feed_forward(kind, own, pooled)

    @cached_property
    def kinds(self) -> tuple[tuple[tuple[Mixer, float], ...], tuple[tuple[FeedForward, float], ...]]:
        """Numbers of layers by their mixer, and by their feed-forward."""
        mixers: dict[Mixer, float] = {}
        feed_forwards: dict[FeedForward, float] = {}
        for layer, count in self.architecture.groups:
            mixers[layer.mixer] = mixers.get(layer.mixer, 0.0) + count
            feed_forwards[layer.feed_forward] = feed_forwards.get(layer.feed_forward, 0.0) + count
        return tuple(mixers.items()), tuple(feed_forwards.items())

    def _messages(self, layer: Layer, own: Load, pooled: Amount) -> Iterator[Part]:
        """Collectives of one layer: sums over the tensor-parallel ranks, and tokens on their way to experts."""
        lay = self.layout
        shared = layer.feed_forward == "moe" and lay.attention_dp > 1
        sums = (layer.mixer != "none") + (layer.feed_forward != "none" and not shared)
        if lay.tp > 1 and sums:
            timed = self._link("all_reduce", own.tokens)
            yield Part("all-reduce", Timed(sums * timed.seconds, 0.0, sums * timed.bytes))
        if shared:
            timed = self._link("all_to_all", pooled / lay.ep)
            yield Part("all-to-all", Timed(2.0 * timed.seconds, 0.0, 2.0 * timed.bytes))

    def _ends(self, own: Load) -> Iterator[Part]:
        """Logits gathered from the ranks that hold the vocabulary; activations handed from stage to stage."""
        lay = self.layout
        if lay.tp > 1:
            yield Part("logits", self._link("all_gather", own.outputs))
        if lay.pp > 1:
            timed = self._link("send", own.tokens)
            hops = float(lay.pp)
            yield Part("pipeline", Timed(hops * timed.seconds, 0.0, hops * timed.bytes))

    def _link(self, kind: Collective, tokens: Amount) -> Timed:
        seconds, width = self.links[kind]
        return Timed(np.interp(tokens, _TOKENS, seconds), 0.0, tokens * width)

    def _host(self, load: Load, device: Amount) -> Leaf:
        """What the device waits for the host: all that it does for a step, or what of it the device's work leaves."""
        traits, layers = self.serving, self.architecture.layers
        work = traits.step_seconds + traits.row_seconds * load.outputs
        # Passes over prompts are not captured; an engine that works ahead has launched them when their time comes.
        prompts, steps = not self.overlapped or not self.graphs, not self.graphs
        every = layers * traits.launch_seconds
        launches: Amount = every * (prompts if _some(load.prompt_tokens) else steps)
        if isinstance(load.prompt_tokens, np.ndarray) and prompts != steps:
            launches = np.where(load.prompt_tokens > 0, every * prompts, every * steps)
        if self.overlapped:
            gap = traits.gap_seconds + traits.gap_row_seconds * load.outputs
            seconds = largest(gap, work + launches - device)
        else:
            seconds = work + largest(launches - device, 0.0)
        return Leaf("host", "host", seconds, 0.0, 0.0, False)

    def _leaf(self, name: str, timed: list[tuple[float, Timed]], bound: Bound | None) -> Leaf:
        count, first = timed[0]
        seconds, flops, moved = count * first.seconds, count * first.flops, count * first.bytes
        for count, each in timed[1:]:
            seconds = seconds + count * each.seconds
            flops = flops + count * each.flops
            moved = moved + count * each.bytes
        return Leaf(name, bound, seconds, flops, moved, all(each.measured for _, each in timed), self.balance)


@lru_cache(maxsize=4096)
def forward_of(
    architecture: Architecture, execution: Execution, machine: Machine, overlapped: bool = True
) -> Forward:
    """Passes of a replica under this layout. InputError where the degrees do not divide the model."""
    layout = layout_of(architecture, execution.parallelism)
    rank = Rank(
        architecture,
        layout,
        execution.precision,
        kernels_of(machine),
        execution.imbalance,
        machine.stack.serving.static_scales,
        _tuned(machine),
    )
    kind, compute = machine.kind, stored(execution.precision.compute)
    peaks = dict(kind.peak_flops)
    balance = peaks.get(compute, max(peaks.values())) / kind.memory_bandwidth_bytes_per_second
    links = _links(architecture, layout, machine, execution.imbalance)
    graphs = execution.graphs and machine.stack.serving.graphs
    return Forward(architecture, layout, rank, machine, graphs, overlapped, links, balance)


def _tuned(machine: Machine) -> Kernels | None:
    """Kernels whose experts the engine's tuner chooses from too."""
    library = machine.stack.serving.experts_too
    if not library or library == machine.stack.kernels.experts_library:
        return None
    other = replace(machine.stack.kernels, experts_library=library)
    return kernels_of(replace(machine, stack=replace(machine.stack, kernels=other)))


def _links(
    architecture: Architecture, layout: Layout, machine: Machine, imbalance: float
) -> dict[Collective, tuple[Floats, float]]:
    """The messages of this layout: sums and logits over tp, tokens to experts and back, stage to stage."""
    width = architecture.hidden * ACTIVATION_BYTES
    wanted: list[tuple[Collective, float, int]] = []
    if layout.tp > 1:
        wanted.append(("all_reduce", width, layout.tp))
        wanted.append(("all_gather", architecture.vocabulary * ACTIVATION_BYTES, layout.tp))
    if layout.attention_dp > 1 and architecture.experts:
        copies = min(architecture.experts.active, layout.ep) * imbalance
        wanted.append(("all_to_all", width * copies, layout.ep))
    if layout.pp > 1:
        wanted.append(("send", width, layout.tp * layout.attention_dp))
    return {kind: (_grid(kind, each, ranks, machine), each) for kind, each, ranks in wanted}


@lru_cache(maxsize=1024)
def _grid(kind: Collective, width: float, ranks: int, machine: Machine) -> Floats:
    return np.asarray(_message(kind, _TOKENS * width, ranks, machine))


def _message(kind: Collective, sizes: Floats, ranks: int, machine: Machine) -> Amount:
    """Seconds of messages of these sizes. `ranks` is the distance of the two ranks of a `send`.

    Engines exchange tokens by kernels in which each rank writes to all others at once (DeepEP, TensorRT-LLM's NVLink
    one-sided all-to-all): a message's latency and the bytes for others, at the pace of the slowest link.
    """
    if kind == "send":
        return collective_seconds(kind, sizes, 2, machine, stride=ranks)
    if kind == "all_to_all":
        inside = machine.fabric.devices_per_node
        distance = 1 if ranks <= inside else inside
        return collective_seconds("send", sizes * (1 - 1 / ranks), 2, machine, stride=distance)
    return collective_seconds(kind, sizes, ranks, machine)


def _split(load: Load, groups: int, microbatches: Amount) -> Load:
    """The share of one attention group in one micro-batch; at least one row where there are any."""
    parts = groups * microbatches
    if np.ndim(parts) == 0 and parts == 1:
        return load
    rows = _shared(load.rows, parts)
    outputs = rows if load.outputs is load.rows else _shared(load.outputs, parts)
    busiest = load.crowding / parts
    return Load(rows, load.context, load.prompt_tokens * busiest, load.pairs * busiest, outputs)


def _shared(rows: Amount, parts: Amount) -> Amount:
    """Rows of one of so many parts, at least one where there are any."""
    if isinstance(rows, float) and isinstance(parts, float | int):
        return max(rows / parts, 1.0) if rows > 0 else 0.0
    return np.where(np.asarray(rows) > 0, np.maximum(np.asarray(rows) / parts, 1.0), 0.0)


def _some(amount: Amount) -> bool:
    return bool(amount > 0 if isinstance(amount, float | int) else (amount > 0).all())
