"""`Forward`: seconds of one pass of a serving replica, kernel by kernel, link by link, with the host's share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rpeg.architecture import Architecture
from rpeg.architecture.model import Layer
from rpeg.cost.execution import Execution
from rpeg.cost.generating.layers import ACTIVATION_BYTES, Part, Rank
from rpeg.cost.generating.layout import Layout, layout_of
from rpeg.cost.generating.load import Load
from rpeg.cost.kernels import Amount, Timed, kernels_of
from rpeg.cost.machine import Machine
from rpeg.cost.network import Collective, collective_seconds
from rpeg.cost.traits import ServingTraits
from rpeg.cost.tree import Bound, Cost

# Sizes at which links are asked, in tokens; between them seconds are interpolated.
_TOKENS = np.concatenate([[0.0], 2.0 ** np.arange(0, 18)])


@dataclass(frozen=True)
class Leaf:
    """Seconds, FLOP and bytes of one sort of work in a pass, over all layers. Numbers or arrays."""

    name: str
    bound: Bound
    seconds: Amount
    flops: Amount
    bytes: Amount
    measured: bool

    def cost(self, repeats: Amount, devices: int) -> Cost:
        """So many times this: seconds of a device, FLOP and bytes of all `devices`."""
        seconds = float(np.sum(self.seconds * repeats))
        flops, moved = (float(np.sum(work * repeats)) * devices for work in (self.flops, self.bytes))
        return Cost(self.name, seconds, flops, moved, self.bound, seconds if self.measured else 0.0)


@dataclass(frozen=True)
class Forward:
    """Passes of one replica.

    graphs: decode steps are replayed as captured graphs; else the host launches every kernel of them.
    """

    architecture: Architecture
    layout: Layout
    rank: Rank
    machine: Machine
    graphs: bool

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

        Where pipeline stages work on different micro-batches at once, all of them have given every sequence a token
        after as long as one micro-batch takes through all stages.
        """
        slots = 1 if self.serving.pipeline == "serial" else self.layout.pp
        own = _split(load, self.layout.attention_dp, slots)
        summed = self._device(own)
        leaves = [self._leaf(name, timed, bound) for name, (timed, bound) in summed.items()]
        device: Amount = 0.0
        for leaf in leaves:
            device = device + leaf.seconds
        return [*leaves, self._host(load, device)]

    def _device(self, own: Load) -> dict[str, tuple[list[tuple[float, Timed]], Bound | None]]:
        """Every kernel and message by name, each with the number of layers that have it."""
        out: dict[str, tuple[list[tuple[float, Timed]], Bound | None]] = {}
        for layer, count in self.architecture.groups:
            for part in self.rank.parts(layer, own):
                out.setdefault(part.name, ([], None))[0].append((float(count), part.timed))
            for part in self._messages(layer, own):
                out.setdefault(part.name, ([], "network"))[0].append((float(count), part.timed))
        for part in self.rank.head(own.outputs):
            out.setdefault(part.name, ([], None))[0].append((1.0, part.timed))
        for part in self._ends(own):
            out.setdefault(part.name, ([], "network"))[0].append((1.0, part.timed))
        return out

    def _messages(self, layer: Layer, own: Load) -> Iterator[Part]:
        """Collectives of one layer: sums over the tensor-parallel ranks, and tokens on their way to experts."""
        lay, width = self.layout, self.architecture.hidden * ACTIVATION_BYTES
        shared = layer.feed_forward == "moe" and lay.attention_dp > 1
        sums = (layer.mixer != "none") + (layer.feed_forward != "none" and not shared)
        if lay.tp > 1 and sums:
            timed = self._link("all_reduce", own.tokens, width, lay.tp)
            yield Part("all-reduce", Timed(sums * timed.seconds, 0.0, sums * timed.bytes))
        if shared:
            assert self.architecture.experts is not None
            copies = min(self.architecture.experts.active, lay.ep) * self.rank.imbalance
            timed = self._link("all_to_all", own.tokens / lay.tp, width * copies, lay.ep)
            yield Part("all-to-all", Timed(2.0 * timed.seconds, 0.0, 2.0 * timed.bytes))

    def _ends(self, own: Load) -> Iterator[Part]:
        """Logits gathered from the ranks that hold the vocabulary; activations handed from stage to stage."""
        lay, a = self.layout, self.architecture
        if lay.tp > 1:
            yield Part(
                "logits", self._link("all_gather", own.outputs, a.vocabulary * ACTIVATION_BYTES, lay.tp)
            )
        if lay.pp > 1:
            timed = self._link("send", own.tokens, a.hidden * ACTIVATION_BYTES, lay.tp * lay.attention_dp)
            hops = float(lay.pp)
            yield Part("pipeline", Timed(hops * timed.seconds, 0.0, hops * timed.bytes))

    def _link(self, kind: Collective, tokens: Amount, width: float, ranks: int) -> Timed:
        grid = _grid(kind, width, ranks, self.machine)
        return Timed(np.interp(tokens, _TOKENS, grid), 0.0, tokens * width)

    def _host(self, load: Load, device: Amount) -> Leaf:
        """What the device waits for the host: scheduling and sampling between steps, and launches beyond its work."""
        traits, layers = self.serving, self.architecture.layers
        between = traits.host_seconds_per_step + traits.host_seconds_per_row * load.outputs
        eager = np.where(np.asarray(load.prompt_tokens) > 0, True, not self.graphs)
        launches = np.where(eager, layers * traits.host_seconds_per_layer, 0.0)
        return Leaf("host", "host", between + np.maximum(launches - device, 0.0), 0.0, 0.0, False)

    def _leaf(self, name: str, timed: list[tuple[float, Timed]], bound: Bound | None) -> Leaf:
        seconds: Amount = 0.0
        flops: Amount = 0.0
        moved: Amount = 0.0
        for count, each in timed:
            seconds = seconds + count * each.seconds
            flops = flops + count * each.flops
            moved = moved + count * each.bytes
        if bound is None:
            kind = self.machine.kind
            memory = np.sum(moved) / kind.memory_bandwidth_bytes_per_second
            bound = "compute" if np.sum(flops) / self._peak > memory else "memory"
        return Leaf(name, bound, seconds, flops, moved, all(each.measured for _, each in timed))

    @property
    def _peak(self) -> float:
        peaks = dict(self.machine.kind.peak_flops)
        return peaks.get(self.rank.precision.compute) or max(peaks.values())


@lru_cache(maxsize=4096)
def forward_of(architecture: Architecture, execution: Execution, machine: Machine) -> Forward:
    """Passes of a replica under this layout. InputError where the degrees do not divide the model."""
    layout = layout_of(architecture, execution.parallelism)
    rank = Rank(
        architecture,
        layout,
        execution.precision,
        kernels_of(machine),
        execution.imbalance,
        machine.stack.serving.small_kernel_seconds,
    )
    return Forward(architecture, layout, rank, machine, execution.graphs)


@lru_cache(maxsize=4096)
def _grid(kind: Collective, width: float, ranks: int, machine: Machine) -> np.ndarray:
    stride = ranks if kind == "send" else 1
    seconds = [
        collective_seconds(
            kind, float(t) * width, max(ranks, 2) if kind == "send" else ranks, machine, stride=stride
        )
        for t in _TOKENS
    ]
    return np.asarray(seconds)


def _split(load: Load, groups: int, microbatches: int) -> Load:
    """The share of one attention group in one micro-batch; at least one row where there are any."""
    parts = groups * microbatches
    if parts == 1:
        return load
    rows = np.where(np.asarray(load.rows) > 0, np.maximum(np.asarray(load.rows) / parts, 1.0), 0.0)
    outputs = np.where(np.asarray(load.outputs) > 0, np.maximum(np.asarray(load.outputs) / parts, 1.0), 0.0)
    return Load(rows, load.context, load.prompt_tokens / parts, load.pairs / parts, outputs)
