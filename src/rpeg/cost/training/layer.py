"""One layer, and the two ends of a model, on one rank for one micro-batch: forward, recomputation, backward."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.architecture.model import Head, Layer
from rpeg.cost.execution import Execution
from rpeg.cost.kernels import kernels_of
from rpeg.cost.machine import Machine
from rpeg.cost.training.ends import embedding_parts, head_parts
from rpeg.cost.training.feedforward import feed_forward_parts
from rpeg.cost.training.mixers import mixer_parts
from rpeg.cost.training.parts import Part, Setting, exchange
from rpeg.cost.training.sharding import accumulation_seconds, gather_seconds, scatter_seconds
from rpeg.cost.tree import Cost, sequence

# Share of the gathers and scatters of sharded weights that may run behind a layer's products: FSDP prefetches the next
# layer, so that only the first gather and the last scatter must show.
_SHARDING_OVERLAP = 0.9


@dataclass(frozen=True, slots=True)
class Passes:
    """The ways that a micro-batch takes through one layer (or one end)."""

    forward: Cost
    recompute: Cost | None
    backward: Cost

    @property
    def training_seconds(self) -> float:
        """Of all ways."""
        return (
            self.forward.seconds + self.backward.seconds + (self.recompute.seconds if self.recompute else 0.0)
        )

    def training(self) -> tuple[Cost, ...]:
        """All ways in order."""
        return tuple(cost for cost in (self.forward, self.recompute, self.backward) if cost is not None)


@lru_cache(maxsize=4096)
def layer_passes(
    architecture: Architecture,
    layer: Layer,
    execution: Execution,
    machine: Machine,
    tokens: float,
    reach: float,
    accumulates: bool,
) -> Passes:
    """A layer of one kind. tokens, reach: of the micro-batch on this rank. accumulates: gradients are added up."""
    setting = Setting(architecture, execution, machine, kernels_of(machine), tokens, reach)
    parts = [
        *mixer_parts(setting, layer),
        *feed_forward_parts(setting, layer),
        *_tensor_parallel(setting, layer),
    ]
    forward, backward = _leaves(parts, "forward"), _leaves(parts, "backward")
    again = _again(parts, execution)
    host = _host_seconds(setting, layer)
    repeats = execution.recompute == "full"
    extra = _weight_traffic(setting, architecture.layer_parts(layer), forward, backward, accumulates)
    return Passes(
        _way("forward", forward, host, extra[0]),
        _way("recompute", again, host if repeats else 0.0, ()) if again else None,
        _way("backward", backward, host, extra[1]),
    )


@lru_cache(maxsize=4096)
def end_passes(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    tokens: float,
    scored: float,
    heads: tuple[Head, ...],
) -> tuple[Passes, Passes]:
    """Embedding and head. tokens: of the micro-batch on this rank; scored: of them for the lm head."""
    setting = Setting(architecture, execution, machine, kernels_of(machine), tokens, 0.0)
    table = {"embedding": architecture.embedding_parameters}
    head = {"head": architecture.vocabulary * architecture.hidden}
    out = []
    for parts, weights in ((embedding_parts(setting), table), (head_parts(setting, heads, scored), head)):
        forward, backward = _leaves(parts, "forward"), _leaves(parts, "backward")
        extra = _weight_traffic(setting, weights, forward, backward, True)
        out.append(
            Passes(_way("forward", forward, 0.0, extra[0]), None, _way("backward", backward, 0.0, extra[1]))
        )
    return out[0], out[1]


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


def _leaves(parts: Iterable[Part], way: str) -> list[Cost]:
    """Leaves of one way; equal names (two norms) are one leaf."""
    out: dict[str, Cost] = {}
    for part in parts:
        seconds, flops, moved, is_measured = part.forward if way == "forward" else part.backward
        old = out.get(part.name)
        measured = seconds if is_measured else 0.0
        if old is None:
            out[part.name] = Cost(part.name, seconds, flops, moved, part.bound, measured)
        else:
            out[part.name] = Cost(
                part.name,
                old.seconds + seconds,
                old.flops + flops,
                old.bytes + moved,
                part.bound,
                old.measured_seconds + measured,
                old.count + 1,
            )
    return list(out.values())


def _again(parts: Iterable[Part], execution: Execution) -> list[Cost]:
    """What backward repeats of the forward."""
    if execution.recompute == "none":
        return []
    if execution.recompute == "full":
        return _leaves(parts, "forward")
    return [
        leaf.scaled(part.selective) for part in parts if part.selective for leaf in _leaves([part], "forward")
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


def _weight_traffic(
    setting: Setting, weights: dict[str, int], forward: list[Cost], backward: list[Cost], accumulates: bool
) -> tuple[tuple[Cost, ...], tuple[Cost, ...]]:
    """What is added each way for weights that are sharded (gathers, scatters) and gradients that add up."""
    ahead, back = [], []
    overlap = _SHARDING_OVERLAP
    if gather := gather_seconds(setting, weights):
        shown = max(gather - overlap * sum(c.seconds for c in forward), gather * (1.0 - overlap))
        ahead.append(Cost("parameter gather", shown, bound="network"))
    scatter = scatter_seconds(setting, weights)
    if gather or scatter:
        both = gather * (setting.execution.parallelism.zero == 3) + scatter
        shown = max(both - overlap * sum(c.seconds for c in backward), both * (1.0 - overlap))
        back.append(Cost("parameter gather and gradient scatter", shown, bound="network"))
    if accumulates and (seconds := accumulation_seconds(setting, weights)):
        back.append(Cost("gradient accumulation", seconds, bound="memory"))
    return tuple(ahead), tuple(back)


def _way(name: str, leaves: list[Cost], host: float, extra: tuple[Cost, ...]) -> Cost:
    cost = sequence(name, (*leaves, *extra))
    wait = host - cost.seconds
    return sequence(name, (*leaves, *extra, Cost("host launches", wait, bound="host"))) if wait > 0 else cost
