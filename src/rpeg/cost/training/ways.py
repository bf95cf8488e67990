"""Seconds of the ways of a micro-batch through a layer, or an end of a model: kernels, and what is added to them.

Sizes may be arrays, as in the kernels: then so are the seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rpeg.architecture.model import Layer
from rpeg.cost.kernels import Amount
from rpeg.cost.kernels.timed import largest
from rpeg.cost.training.feedforward import feed_forward_parts
from rpeg.cost.training.mixers import mixer_parts
from rpeg.cost.training.parts import Part, Setting, exchange
from rpeg.cost.training.sharding import accumulation_seconds, gather_seconds, scatter_seconds

# Share of the gathers and scatters of sharded weights that may run behind a layer's products: FSDP prefetches the next
# layer, so that only the first gather and the last scatter must show.
_SHARDING_OVERLAP = 0.9


class Sums(NamedTuple):
    """Seconds of all kernels and exchanges of a layer or an end. selective: of what selective recomputation repeats."""

    forward: Amount
    backward: Amount
    selective: Amount

    def at(self, own: slice) -> Sums:
        """Of some of many micro-batches."""
        return Sums(*(each[own] if isinstance(each, np.ndarray) else each for each in self))

    @staticmethod
    def of(parts: Iterable[Part]) -> Sums:
        """Of these, one after another."""
        forward = backward = selective = 0.0
        for part in parts:
            forward, backward = forward + part.forward.seconds, backward + part.backward.seconds
            if part.selective:
                selective = selective + part.selective * part.forward.seconds
        return Sums(forward, backward, selective)


class Added(NamedTuple):
    """Seconds that come to the kernels of a layer or an end, whatever the micro-batch.

    gather, scatter: of sharded weights and gradients. accumulation: of a pass that adds gradients up. host: the least
    that one way takes, as the host launches it.
    """

    gather: float
    scatter: float
    accumulation: float
    host: float = 0.0

    def ahead(self, forward: Amount) -> Amount:
        """What of the gather does not hide behind the kernels of a forward pass."""
        return _shown(self.gather, forward)

    def back(self, backward: Amount) -> Amount:
        """What of gather and scatter does not hide behind the kernels of a backward pass."""
        return _shown(self.gather + self.scatter, backward)


class Ways(NamedTuple):
    """Seconds of the ways that a micro-batch takes through a layer or an end."""

    forward: Amount
    recompute: Amount
    backward: Amount

    @property
    def training(self) -> Amount:
        """Of all ways."""
        return self.forward + self.recompute + self.backward

    @staticmethod
    def of(sums: Sums, added: Added, recompute: str) -> Ways:
        """With what is added to the kernels."""
        forward = sums.forward + added.ahead(sums.forward)
        backward = sums.backward + added.back(sums.backward) + added.accumulation
        again: Amount = 0.0
        if recompute != "none":
            again = largest(sums.forward, added.host) if recompute == "full" else sums.selective
        return Ways(largest(forward, added.host), again, largest(backward, added.host))


def layer_parts(setting: Setting, layer: Layer) -> list[Part]:
    """Kernels and exchanges of a layer, which rest on the micro-batch and on how tensors are cut, not on ZeRO."""
    return [
        *mixer_parts(setting, layer),
        *feed_forward_parts(setting, layer),
        *_tensor_parallel(setting, layer),
    ]


def added_to_layer(setting: Setting, layer: Layer) -> Added:
    """What ZeRO, accumulation and the host add to a layer; rests on the layout, not on the micro-batch."""
    return _added(setting, setting.architecture.layer_parts(layer), _host_seconds(setting, layer))


def added_to_ends(setting: Setting) -> tuple[Added, Added]:
    """The same of embedding and head."""
    a = setting.architecture
    tables = {"embedding": a.embedding_parameters}, {"head": a.vocabulary * a.hidden}
    return _added(setting, tables[0]), _added(setting, tables[1])


def _added(setting: Setting, weights: dict[str, int], host: float = 0.0) -> Added:
    return Added(
        gather_seconds(setting, weights),
        scatter_seconds(setting, weights) if setting.trains else 0.0,
        accumulation_seconds(setting, weights) if setting.trains else 0.0,
        host,
    )


def _tensor_parallel(setting: Setting, layer: Layer) -> list[Part]:
    """One reduction after each part whose products are cut; with sequence parallelism a gather and a scatter."""
    a, layout = setting.architecture, setting.execution.parallelism
    shared = a.experts is not None and a.experts.shared_ffn > 0
    cut = (layer.mixer != "none") + (
        layer.feed_forward == "dense" or (layer.feed_forward == "moe" and shared)
    )
    if layout.tp == 1 or not cut:
        return []
    size, hidden = setting.tokens * a.hidden * setting.activation_bytes, setting.traits.tensor_overlap
    if not layout.sequence_parallel:
        return [exchange(setting, "tensor parallel", "all_reduce", size, layout.tp, 1, cut, hidden)]
    return [
        exchange(setting, "sequence gather", "all_gather", size, layout.tp, 1, cut, hidden),
        exchange(setting, "sequence scatter", "reduce_scatter", size, layout.tp, 1, cut, hidden),
    ]


def _host_seconds(setting: Setting, layer: Layer) -> float:
    """Least time that the host takes to launch one way of a layer; captured graphs need none."""
    if setting.execution.graphs:
        return 0.0
    traits, layout = setting.traits, setting.execution.parallelism
    experts = layer.feed_forward == "moe"
    seconds = traits.host_seconds_per_expert_layer if experts else traits.host_seconds_per_layer
    if layout.tp == 1:
        return seconds
    stall = _stall(setting) * layout.tp
    return seconds + (4 if layout.sequence_parallel else 2) * (traits.host_seconds_per_collective + stall)


def _stall(setting: Setting) -> float:
    """Host time for each rank that tensor-parallel collectives of eager stacks were seen to lose over EFA."""
    traits, layout, fabric = setting.traits, setting.execution.parallelism, setting.machine.fabric
    node, beyond = fabric.levels[0][1], fabric.levels[-1][0]
    if beyond.transport != "efa":
        return 0.0
    if layout.pp > 1 and layout.devices > node:
        return traits.pipelined_host_seconds_per_rank * math.sqrt(max(1.0, layout.tp / node))
    return traits.crossing_host_seconds_per_rank if layout.tp > node else 0.0


def _shown(seconds: float, window: Amount) -> Amount:
    """What of a gather or scatter is left where it runs behind kernels."""
    if not seconds:
        return 0.0
    return largest(seconds - _SHARDING_OVERLAP * window, seconds * (1.0 - _SHARDING_OVERLAP))
