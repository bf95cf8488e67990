"""`TrainingTraits`: what a stack adds to the kernels of a training step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingTraits:
    """Training.

    host_seconds_per_layer: of the host, to launch one way (forward, repeated forward, backward) of a layer.
    host_seconds_per_expert_layer: the same of a layer with experts.
    host_seconds_per_collective: of the host, for one tensor-parallel collective of a layer.
    pipelined_host_seconds_per_rank: the same for each rank of the group, where pipeline messages cross nodes
    over EFA; grows with the root of the nodes that the group spans.
    crossing_host_seconds_per_rank: the same where the group itself crosses EFA and no pipeline does.
    host_seconds_per_update: of the host between two updates: data, logging, launches of the optimizer.
    sustained_products: time of 16-bit products in a long run over that of short bursts.
    grouped_products: time of the products of experts over that of as many single ones of their shape.
    elementwise_factor: traffic of norms, activations and residuals over that of fused kernels.
    scan_efficiency: share of the peak that the small products of chunked recurrences reach.
    loss_bytes_per_logit: traffic of the loss and its gradient for each logit.
    replica_overlap: share of the reduction between whole replicas that may run behind the last backward.
    reduction_overlap: share of a sharded update's reduction and gather that may run behind a micro-batch.
    tensor_overlap: share of tensor-parallel collectives that runs behind products.
    fused: products add up weight gradients themselves, and kernels before them scale the operands of 8-bit ones.
    """

    host_seconds_per_layer: float = 0.0
    host_seconds_per_expert_layer: float = 5.5e-3
    host_seconds_per_collective: float = 0.0
    pipelined_host_seconds_per_rank: float = 0.0
    crossing_host_seconds_per_rank: float = 0.0
    host_seconds_per_update: float = 0.0
    sustained_products: float = 1.0
    grouped_products: float = 1.25
    elementwise_factor: float = 1.0
    scan_efficiency: float = 0.016
    loss_bytes_per_logit: float = 30.0
    replica_overlap: float = 0.0
    reduction_overlap: float = 0.0
    tensor_overlap: float = 0.0
    fused: bool = False
