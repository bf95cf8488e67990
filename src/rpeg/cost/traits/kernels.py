"""`KernelTraits`: which kernels a stack runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelTraits:
    """Kernels of a stack.

    attention: class of the attention kernel: fused (FlashAttention, cuDNN) or unfused (softmax over a matrix in memory).
    attention_slowdown: time of its fused attention over that of the newest kernel of the device kind, forward.
    attention_backward: efficiency of the fused backward, which has 2.5 times the FLOP, over that of the forward.
    score_bytes: moved for each entry of the score matrix in a forward where attention is unfused.
    library: whose measured attention (and latent attention) is asked first: vllm, sglang or tensorrt-llm.
    experts_library: the same of grouped products over experts.
    """

    attention: str = "fused"
    attention_slowdown: float = 1.0
    attention_backward: float = 0.85
    score_bytes: float = 12.0
    library: str = "vllm"
    experts_library: str = "tensorrt-llm"
