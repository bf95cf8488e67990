"""What an optimizer step adds to the micro-batches: reduction, clipping, the step itself, gathering of weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.kernels import Amount, kernels_of
from rpeg.cost.kernels.timed import largest
from rpeg.cost.machine import Machine
from rpeg.cost.network import Collective, collective_seconds
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.training.sharding import groups, shard_ranks, stage_weights, streams
from rpeg.cost.tree import Cost


def update_costs(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    layers: float,
    forward_seconds: float,
    backward_seconds: float,
) -> list[Cost]:
    """Leaves of one update on a rank of the fullest stage.

    forward_seconds, backward_seconds: of one micro-batch on the stage, behind which communication may hide.
    """
    one = update(architecture, execution, machine, layers, forward_seconds, backward_seconds)
    costs = [
        Cost("gradient reduction", one.reduction, bytes=one.reduced_bytes, bound="network"),
        Cost("optimizer", one.optimizer, bytes=one.optimizer_bytes, bound="memory"),
        Cost("optimizer offload", one.offload, bytes=one.offloaded_bytes, bound="host"),
        Cost("parameter gather", one.gather, bound="network"),
    ]
    return [cost for cost in costs if cost.seconds]


class Update(NamedTuple):
    """Seconds and bytes of what an optimizer step adds, as numbers or arrays."""

    reduction: Amount
    reduced_bytes: Amount
    optimizer: Amount
    optimizer_bytes: Amount
    offload: Amount
    offloaded_bytes: Amount
    gather: Amount

    @property
    def seconds(self) -> Amount:
        """Of all of it."""
        return self.reduction + self.optimizer + self.offload + self.gather


def update(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    layers: Amount,
    forward_seconds: Amount,
    backward_seconds: Amount,
) -> Update:
    """As `update_costs`, of one micro-batch or of many at once."""
    dense, experts = stage_weights(architecture, execution, layers)
    traits = machine.stack.training
    overlap = traits.reduction_overlap if execution.parallelism.zero else traits.replica_overlap
    reduce, gather, moved = _communication(execution, machine, dense, experts)
    return Update(
        _shown(reduce, overlap, backward_seconds),
        moved,
        *_optimizer(execution, machine, dense, experts),
        _shown(gather, overlap, forward_seconds),
    )


def _shown(seconds: Amount, overlap: float, window: Amount) -> Amount:
    return largest(seconds * (1.0 - overlap), seconds - overlap * window)


def _communication(
    execution: Execution, machine: Machine, dense: Amount, experts: Amount
) -> tuple[Amount, Amount, Amount]:
    """Seconds of the reduction and of the gathering after it, and bytes reduced;
    ZeRO 2 and 3 scatter as they go, unless pipelines make them wait."""
    layout, precision = execution.parallelism, execution.precision
    reduce: Amount = 0.0
    gather: Amount = 0.0
    size, weight = BYTES_OF[precision.reduced], BYTES_OF[precision.weights]
    kind: Collective = "all_reduce" if layout.zero == 0 else "reduce_scatter"
    shards = shard_ranks(layout)
    for number, (ranks, stride) in zip((dense, experts), groups(layout), strict=True):
        if ranks < 2 or not np.any(number):
            continue
        within = min(ranks, shards) if layout.zero else ranks
        if not streams(layout) or execution.lora_rank is not None:
            reduce += collective_seconds(kind, number * size, within, machine, stride=stride)
            if within < ranks:  # hybrid: shards are reduced over their replicas
                beyond = collective_seconds(
                    "all_reduce", number * size / within, ranks // within, machine, stride=stride * within
                )
                reduce += beyond
        if layout.zero in (1, 2) or (layout.zero == 3 and not streams(layout)):
            gather += collective_seconds("all_gather", number * weight, within, machine, stride=stride)
    return reduce, gather, (dense + experts) * size


def _optimizer(
    execution: Execution, machine: Machine, dense: Amount, experts: Amount
) -> tuple[Amount, Amount, Amount, Amount]:
    """Seconds and bytes of the step, and of the way to the host and back where its state is there.

    Clipping reads gradients; Adam reads gradients, reads and writes moments and master weights, writes weights."""
    layout, precision = execution.parallelism, execution.precision
    if layout.zero:
        _, (expert_ranks, _) = groups(layout)
        dense, experts = dense / shard_ranks(layout), experts / min(expert_ranks, shard_ranks(layout))
    number = dense + experts
    gradient, moment = BYTES_OF[precision.gradients], BYTES_OF[precision.moments]
    state = 2.0 * moment + (4.0 if precision.master else 0.0)
    traffic = 2.0 * gradient + 2.0 * state + BYTES_OF[precision.weights] * (1.0 if precision.master else 2.0)
    timed = kernels_of(machine).memory(number * traffic)
    moved = 2.0 * number * (state + gradient) * (execution.offload != "none")
    return timed.seconds, number * traffic, moved / machine.kind.host_bandwidth_bytes_per_second, moved
