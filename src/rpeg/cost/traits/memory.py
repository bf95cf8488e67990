"""`MemoryTraits`: what a stack holds beside what the model needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class MemoryTraits:
    """Memory.

    context_bytes: of a process that holds no model: driver context and libraries.
    group_bytes: buffers of the communication library for one process group, outside the allocator.
    workspace_bytes: scratch memory of libraries, inside the allocator.
    unused_share: what the caching allocator keeps beyond tensors that come and go, as a share of them.
    norm_bytes: bytes that a norm keeps of each input element for its backward pass.
    fused_activation: the gated activation is one kernel that keeps only its two inputs.
    selective: what selective recomputation drops: the attention's matrices, or all but every other matrix product.
    logit_copies: dtypes of the copies of the logits that live at once at the loss, the gradient last.
    chunk_tokens: tokens whose logits live at once where they are chunked.
    gradient_buckets: gradients wait for their reduction whole, in the dtype of the weights, beside the accumulated
    ones where those have another dtype.
    bucket_bytes: buffers through which gradients are reduced, beside the gradients themselves.
    accumulates_whole: micro-batches of an update do not reduce their gradients under ZeRO-3, so these wait whole, and
    those of frozen weights with them.
    balanced_stages: pipeline ranks have equal work, head included, not equal numbers of layers.
    optimizer_bytes: temporaries of the optimizer step for each parameter that a device updates.
    graph_bytes: pool of captured CUDA graphs of an inference engine. host_process_bytes: host memory of a worker.
    gradients_stay: gradient buffers live from start to end, not only in the update.
    """

    context_bytes: float = 0.5e9
    group_bytes: float = 0.6e9
    workspace_bytes: float = 0.128e9
    unused_share: float = 0.15
    norm_bytes: float = 2.0
    fused_activation: bool = False
    selective: Literal["attention", "products"] = "attention"
    logit_copies: str = "bfloat16 float32 float32 float32"
    chunk_tokens: int = 1024
    gradient_buckets: bool = False
    bucket_bytes: float = 0.0
    accumulates_whole: bool = False
    balanced_stages: bool = False
    optimizer_bytes: float = 4.0
    graph_bytes: float = 1.0e9
    host_process_bytes: float = 4.0e9
    gradients_stay: bool = False
