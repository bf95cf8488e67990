"""`Kernels`: seconds of matrix products, attention and passes over memory on one kind of device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rpeg.cluster import DeviceKind
from rpeg.cost.machine import Machine
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.stack import Stack

# A number, or an array of them where many shapes are asked at once; the answer is of the same form.
Amount = Any


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel or many alike: seconds, FLOP, bytes of device memory moved, and whether a table was asked.

    All have the form of what was asked: numbers, or arrays.
    """

    seconds: Amount
    flops: Amount
    bytes: Amount
    measured: bool = False


@dataclass(frozen=True)
class Kernels:
    """Kernels of one device kind under one stack; launches are counted by the stages, not here."""

    kind: DeviceKind
    stack: Stack

    def gemm(self, m: Amount, n: int, k: int, dtype: str) -> Timed:
        """(m, k) × (k, n), with its operands and result passing through memory once."""
        flops, size = 2.0 * m * n * k, BYTES_OF[dtype]
        moved = size * (m * k + n * k) + 2.0 * m * n
        return self._roofline(flops, moved, dtype)

    def grouped_gemm(self, tokens: Amount, groups: int, n: int, k: int, dtype: str) -> Timed:
        """`tokens` rows spread over the weights of `groups` experts, as one grouped kernel.

        Of few tokens not every expert's weights are read.
        """
        flops, size = 2.0 * tokens * n * k, BYTES_OF[dtype]
        moved = size * (tokens * k + np.minimum(groups, tokens) * n * k) + 2.0 * tokens * n
        return self._roofline(flops, moved, dtype)

    def attention(
        self, pairs: Amount, tokens: Amount, heads: int, kv_heads: int, head_dim: int, dtype: str
    ) -> Timed:
        """Scores and values of a prefill or a training forward, causal and fused.

        pairs: of a query and a key that it sees, of all sequences together (length² / 2 where causal).
        """
        flops = 4.0 * pairs * heads * head_dim
        moved = 2.0 * tokens * (2 * heads + 2 * kv_heads) * head_dim
        return self._roofline(flops, moved, dtype)

    def decode_attention(
        self, rows: Amount, context: Amount, heads: int, kv_heads: int, head_dim: int, dtype: str
    ) -> Timed:
        """One new token for each of `rows` sequences with `context` tokens of cache each; dtype: of the cache."""
        flops = 4.0 * rows * context * heads * head_dim
        moved = BYTES_OF[dtype] * rows * context * 2 * kv_heads * head_dim
        return self._roofline(flops, moved, "bfloat16")

    def memory(self, size_bytes: Amount) -> Timed:
        """A pass over memory that reads and writes `size_bytes` in all: norms, activations, copies, optimizers."""
        seconds = size_bytes / (0.8 * self.kind.memory_bandwidth_bytes_per_second)
        return Timed(seconds, 0.0, size_bytes)

    def _roofline(self, flops: Amount, moved: Amount, dtype: str) -> Timed:
        compute = flops / (0.7 * self.kind.peak(dtype))
        memory = moved / (0.8 * self.kind.memory_bandwidth_bytes_per_second)
        return Timed(np.maximum(compute, memory), flops, moved)


@lru_cache(maxsize=64)
def kernels_of(machine: Machine) -> Kernels:
    """The kernels of a machine's devices under its stack."""
    return Kernels(machine.kind, machine.stack)
