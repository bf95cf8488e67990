"""Weights and gradients of a rank: how many it holds, and what ZeRO moves of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.cost.adapters import all_adapters
from rpeg.cost.execution import Execution
from rpeg.cost.kernels import Amount
from rpeg.cost.network import Collective, collective_seconds
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.training.parts import Setting
from rpeg.plan import Parallelism


def held(weights: Mapping[str, int], layout: Parallelism) -> tuple[float, float]:
    """(dense, expert) numbers of a rank before ZeRO: dense parts are cut over tp, experts over ep."""
    experts = weights.get("experts", 0)
    return (sum(weights.values()) - experts) / layout.tp, experts / layout.ep


def groups(layout: Parallelism) -> tuple[tuple[int, int], tuple[int, int]]:
    """(ranks, stride) over which gradients of dense parts and of experts are reduced."""
    replicas = layout.tp * layout.cp * layout.dp
    return (layout.dp * layout.cp, layout.tp), (max(1, replicas // layout.ep), layout.ep)


def shard_ranks(layout: Parallelism) -> int:
    """Ranks over which ZeRO cuts dense weights: context-parallel ranks hold equal ones, so they take part."""
    return layout.shards * layout.cp


def streams(layout: Parallelism) -> bool:
    """Whether gradients are scattered (and with ZeRO 3 weights gathered) layer by layer in every micro-batch.

    Pipelines keep weights gathered and gradients whole until the last micro-batch (torchtitan: reshard_after_forward
    is off under pipeline parallelism; Megatron-LM allows ZeRO 2 without pipelines only).
    """
    return layout.zero >= 2 and layout.pp == 1


def gather_seconds(setting: Setting, weights: Mapping[str, int]) -> float:
    """An all-gather of these weights where parameters are sharded."""
    layout = setting.execution.parallelism
    if layout.zero < 3 or not streams(layout):
        return 0.0
    size = BYTES_OF[setting.execution.precision.activations]
    return _moved(setting, weights, size, "all_gather")


def scatter_seconds(setting: Setting, weights: Mapping[str, int]) -> float:
    """A reduce-scatter of the gradients of these weights where gradients are sharded as soon as they are there."""
    if not streams(setting.execution.parallelism) or setting.execution.lora_rank is not None:
        return 0.0
    return _moved(setting, weights, BYTES_OF[setting.execution.precision.reduced], "reduce_scatter")


def _moved(setting: Setting, weights: Mapping[str, int], size: float, kind: Collective) -> float:
    layout = setting.execution.parallelism
    dense, experts = held(weights, layout)
    (ranks, stride), (expert_ranks, expert_stride) = groups(layout)
    ranks = min(ranks, shard_ranks(layout))
    seconds = _collective(setting, kind, dense * size, ranks, stride)
    if layout.shard and kind == "reduce_scatter" and layout.dp > layout.shard:  # hybrid: replicas of shards
        seconds += _collective(
            setting, "all_reduce", dense * size / ranks, layout.dp // layout.shard, stride * ranks
        )
    return seconds + _collective(setting, kind, experts * size, expert_ranks, expert_stride)


def _collective(setting: Setting, kind: Collective, size: float, ranks: int, stride: int) -> float:
    if ranks < 2 or not size:
        return 0.0
    return float(collective_seconds(kind, size, ranks, setting.machine, stride=stride))


def accumulation_seconds(setting: Setting, weights: Mapping[str, int]) -> float:
    """Adding a micro-batch's weight gradients to those before it in a pass that reads both and writes one.

    None where the products add, where there is little to add (sharded gradients, adapters).
    """
    execution = setting.execution
    none = setting.traits.fused or execution.lora_rank is not None
    if none or streams(execution.parallelism):
        return 0.0
    dense, experts = held(weights, execution.parallelism)
    gradient = BYTES_OF[execution.precision.gradients]
    fresh = BYTES_OF[execution.precision.activations]
    return float(setting.kernels.memory((dense + experts) * (2.0 * gradient + fresh)).seconds)


def stage_weights(architecture: Architecture, execution: Execution, layers: Amount) -> tuple[Amount, Amount]:
    """(dense, expert) numbers that a rank of the fullest pipeline stage trains, before ZeRO."""
    layout, share = execution.parallelism, layers / architecture.layers
    if execution.lora_rank is not None:
        return all_adapters(
            architecture, execution.lora_rank, execution.lora_targets
        ) * share / layout.tp, 0.0
    dense, experts = _all_layers(architecture, layout.tp, layout.ep)
    table = architecture.vocabulary * architecture.hidden / layout.tp
    tables = table if layout.pp > 1 or architecture.tied_embeddings else 2 * table
    return dense * share + tables, experts * share


@lru_cache(maxsize=1024)
def _all_layers(architecture: Architecture, tp: int, ep: int) -> tuple[float, float]:
    """(dense, expert) numbers of a rank's part of all layers."""
    dense = experts = 0.0
    for layer, count in architecture.groups:
        d, e = held(architecture.layer_parts(layer), Parallelism(tp=tp, ep=ep))
        dense, experts = dense + d * count, experts + e * count
    return dense, experts
