"""`KernelTraits`: which kernels a stack runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelTraits:
    """Kernels of a stack.

    attention: class of the attention kernel: fused (FlashAttention, cuDNN) or unfused (softmax over a matrix in memory).
    """

    attention: str = "fused"
