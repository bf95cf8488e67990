"""`Kernels`: seconds of matrix products, attention and passes over memory on one kind of device."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.asked import Asked, asked
from rpeg.cost.kernels.curve import Curve, roofline_curve
from rpeg.cost.kernels.ideal import computes_as, ideal_seconds
from rpeg.cost.kernels.sources import Source, source_of
from rpeg.cost.kernels.timed import Timed
from rpeg.cost.kernels.timed import largest as _largest
from rpeg.cost.kernels.work import (
    ATTENTION_DTYPE,
    Amount,
    Work,
    attention_work,
    decode_attention_work,
    experts_touched,
    experts_work,
    gemm_work,
    latent_attention_work,
    latent_decode_work,
)
from rpeg.cost.machine import Machine
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.stack import Stack

# Share of the advertised memory bandwidth that long passes reach: medians of aiconfigurator-core 0.12.0's
# `quantize/scale_matrix` (vLLM's and PyTorch's) over 0.5 to 1 GB are 0.88-0.91 on H100, 0.85-0.90 on H200, 0.70-0.82 on
# B200, 0.75-0.79 on L40S. One value for all kinds.
MEMORY_EFFICIENCY = 0.85
# Batched products of scores with their narrow inner dimension, of the dense peak: an estimate; passes over the score
# matrix take longer than these.
_SCORES_EFFICIENCY = 0.5
# Curves that are kept; a search over shapes must not fill the memory.
_MOST_CURVES = 4096
# Where no table is known: share of the peak of large products in dtypes that run on ordinary cores.
ROOFLINE = {"float32": 0.85, "float64": 0.85}
# Scores and values recomputed and differentiated: 5 products instead of 2 (FlashAttention-2, arXiv:2307.08691, §4.1).
FUSED_BACKWARD = 2.5


class _Product(NamedTuple):
    """Products along one size: FLOP for each unit of it, bytes without any of it, and bytes for each unit."""

    curve: Curve
    flops: float
    still_bytes: float
    moved_bytes: float


def _linear_work(n: float, other: float, dtype: str, free: str) -> tuple[float, float, float]:
    """FLOP a unit, bytes at none and bytes a unit of the free size: both are linear in it."""

    def work(x: float) -> Work:
        return gemm_work(x, n, other, dtype) if free == "m" else gemm_work(other, n, x, dtype)

    none, one = work(0.0), work(1.0)
    return one[0], none[1], one[1] - none[1]


@dataclass(frozen=True)
class Kernels:
    """Kernels of one device kind under one stack; launches are counted by the stages, not here.

    Every number may be an array where a signature says `Amount`. Seconds are those of the device alone, at least
    `floor_seconds` a kernel.
    """

    kind: DeviceKind
    stack: Stack
    source: Source = field(compare=False)
    _asked: dict[tuple[str, str, str, float], Asked | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    _curves: dict[tuple[object, ...], _Product] = field(default_factory=dict, compare=False, repr=False)

    @property
    def floor_seconds(self) -> float:
        """The least that a kernel takes on the device."""
        return self.source.floor_seconds

    def gemm(self, m: Amount, n: float, k: float, dtype: str) -> Timed:
        """(m, k) × (k, n). In float8 and float4 with the quantisation of the (m, k) operand, as engines run it."""
        return self._gemm(m, n, k, dtype, "m")

    def gemm_backward(self, m: Amount, n: float, k: float, dtype: str, accumulate: str = "bfloat16") -> Timed:
        """Both products of the backward of (m, k) × (k, n): (m, n) × (n, k) to the input, (k, m) × (m, n) to the weights.

        accumulate: dtype of the weight gradients that the second one adds to; float32 moves more bytes.
        """
        data, weights = self._gemm(m, k, n, dtype, "m"), self._gemm(k, n, m, dtype, "k")
        extra = (2 * BYTES_OF[accumulate] - 2.0) * n * k
        bound = (weights.bytes + extra) / (MEMORY_EFFICIENCY * self.kind.memory_bandwidth_bytes_per_second)
        seconds = data.seconds + _largest(weights.seconds, bound)
        moved = data.bytes + weights.bytes + extra
        return Timed(seconds, data.flops + weights.flops, moved, data.measured and weights.measured)

    def experts(self, rows: Amount, experts: float, hidden: float, inner: float, dtype: str) -> Timed:
        """Gate, up and down of `rows` routed tokens over the `experts` of this device, evenly loaded, with permutation.

        Of few rows not every expert's weights are read.
        """
        compute = computes_as(self.kind, dtype)
        work = experts_work(rows, experts, hidden, inner, dtype)
        asked_ = self._of("experts", dtype, self.stack.kernels.experts_library, 0, compute)
        if asked_ is None:
            touched = experts_touched(rows, experts)
            m = np.maximum(rows / touched, 1.0)
            up, down = self.gemm(m, 2 * inner, hidden, dtype), self.gemm(m, hidden, inner, dtype)
            seconds = touched * (up.seconds + down.seconds)
            return Timed(_largest(seconds, self.floor_seconds), *work, False)
        side = (
            hidden * inner
        ) ** 0.5  # tables hold experts by the size of their matrices, whatever their sides
        like = experts_work(rows, experts, side, side, dtype)
        return asked_.timed(work, rows, experts, hidden * inner, like=like)

    def grouped_gemm(self, tokens: Amount, groups: float, n: float, k: float, dtype: str) -> Timed:
        """`tokens` rows spread over the weights of `groups` experts, as one grouped kernel.

        A third of `experts` with as many weights in all, as the tables measure whole feed-forwards.
        """
        # The same products and weights: 3 · hidden · inner = 3 · n · k when inner = n and hidden = k.
        whole = self.experts(tokens, groups, k, n, dtype)
        return Timed(whole.seconds / 3, whole.flops / 3, whole.bytes / 3, whole.measured)

    def attention(
        self, pairs: Amount, tokens: Amount, heads: float, kv_heads: float, head_dim: float, dtype: str
    ) -> Timed:
        """Scores and values of a prefill or a training forward.

        pairs: of a query and a key that it sees, of all sequences together (length² / 2 each where causal).
        """
        work = attention_work(pairs, tokens, heads, kv_heads, head_dim)
        if self.stack.kernels.attention == "unfused":
            return self._unfused(pairs, heads, head_dim)
        compute = computes_as(self.kind, _attention_dtype(dtype))
        library = self.stack.kernels.library
        asked_ = self._of("attention", _attention_dtype(dtype), library, head_dim, compute)
        if asked_ is None:
            return self._roofline(work, compute, 0.5)
        length = _length(pairs, tokens)
        timed = asked_.timed(work, kv_heads / heads, tokens * heads, length)
        slower = self.stack.kernels.attention_slowdown
        return Timed(timed.seconds * slower, timed.flops, timed.bytes, timed.measured and slower == 1.0)

    def attention_backward(
        self, pairs: Amount, tokens: Amount, heads: float, kv_heads: float, head_dim: float, dtype: str
    ) -> Timed:
        """The backward of `attention`: 2.5 times its FLOP where fused (scores are recomputed), else twice."""
        forward = self.attention(pairs, tokens, heads, kv_heads, head_dim, dtype)
        if self.stack.kernels.attention == "unfused":
            return Timed(2 * forward.seconds, 2 * forward.flops, 2 * forward.bytes)
        seconds = forward.seconds * FUSED_BACKWARD / self.stack.kernels.attention_backward
        return Timed(seconds, FUSED_BACKWARD * forward.flops, 2 * forward.bytes)

    def decode_attention(
        self, rows: Amount, context: Amount, heads: float, kv_heads: float, head_dim: float, dtype: str
    ) -> Timed:
        """One new token for each of `rows` sequences with `context` tokens of cache each; dtype: of the cache."""
        work = decode_attention_work(rows, context, heads, kv_heads, head_dim, dtype)
        compute = computes_as(self.kind, ATTENTION_DTYPE)
        library = self.stack.kernels.library
        asked_ = self._of("decode_attention", dtype, library, head_dim, compute)
        if heads == kv_heads:
            asked_ = self._of("decode_attention_ungrouped", dtype, library, head_dim, compute) or asked_
        if asked_ is None:
            return self._roofline(work, compute, 0.7)
        return asked_.timed(work, heads / kv_heads, rows * kv_heads, context)

    def latent_attention(
        self, pairs: Amount, tokens: Amount, heads: float, nope: float, rope: float, value: float, dtype: str
    ) -> Timed:
        """Multi-head latent attention of a prefill or a training forward, with keys and values expanded."""
        work = latent_attention_work(pairs, tokens, heads, nope, rope, value)
        compute = computes_as(self.kind, _attention_dtype(dtype))
        asked_ = self._of("latent_attention", "bfloat16", self.stack.kernels.library, 0, compute)
        if asked_ is None:
            return self._roofline(work, compute, 0.5)
        return asked_.timed(work, tokens * heads, _length(pairs, tokens))

    def latent_attention_backward(
        self, pairs: Amount, tokens: Amount, heads: float, nope: float, rope: float, value: float, dtype: str
    ) -> Timed:
        """The backward of `latent_attention`."""
        forward = self.latent_attention(pairs, tokens, heads, nope, rope, value, dtype)
        seconds = forward.seconds * FUSED_BACKWARD / self.stack.kernels.attention_backward
        return Timed(seconds, FUSED_BACKWARD * forward.flops, 2 * forward.bytes)

    def latent_decode(
        self, rows: Amount, context: Amount, heads: float, rank: float, rope: float, dtype: str
    ) -> Timed:
        """One new token a row over a latent cache of rank + rope a token; absorbing products are GEMMs of their own."""
        work = latent_decode_work(rows, context, heads, rank, rope, dtype)
        compute = computes_as(self.kind, ATTENTION_DTYPE)
        asked_ = self._of("latent_decode", dtype, self.stack.kernels.library, 0, compute)
        if asked_ is None:
            return self._roofline(work, compute, 0.6)
        return asked_.timed(work, heads, rows, context)

    def memory(self, size_bytes: Amount) -> Timed:
        """A pass over memory that reads and writes `size_bytes` in all: norms, activations, copies, optimizers."""
        work: Work = (0.0, size_bytes)
        asked_ = self._of("memory", "", "", 0, ATTENTION_DTYPE)
        if asked_ is not None:
            return asked_.timed(work, size_bytes)
        seconds = size_bytes / (MEMORY_EFFICIENCY * self.kind.memory_bandwidth_bytes_per_second)
        return Timed(_largest(seconds, self.floor_seconds), *work)

    def _gemm(self, m: Amount, n: Amount, k: Amount, dtype: str, free: str) -> Timed:
        """free: the one of m and k that may be an array."""
        x, other = (m, k) if free == "m" else (k, m)
        key = (free, n, other, dtype)
        found = self._curves.get(key)
        if found is None:
            if len(self._curves) >= _MOST_CURVES:
                self._curves.clear()
            curve = self._curve(m, n, k, dtype, free)
            found = self._curves[key] = _Product(curve, *_linear_work(n, other, dtype, free))
        curve, flops, still, moved = found
        seconds = curve.number(x) if isinstance(x, float | int) else curve.numbers(np.asarray(x, np.float64))
        return Timed(seconds, flops * x, still + moved * x, curve.measured)

    def _curve(self, m: Amount, n: Amount, k: Amount, dtype: str, free: str) -> Curve:
        compute = computes_as(self.kind, dtype)
        fixed = {"n": float(n), "k": float(k)} if free == "m" else {"m": float(m), "n": float(n)}

        def work(x: Amount) -> Work:
            return gemm_work(**{**fixed, free: x}, dtype=dtype)

        found = self._of("gemm", dtype, "", 0, compute)
        if found is None:

            def ideal(x: Amount) -> Amount:
                return ideal_seconds(self.kind, work(x), compute)

            return roofline_curve(ideal, ROOFLINE.get(compute, 0.7), self.floor_seconds)
        return found.along(free, fixed, work)

    def _of(self, op: str, dtype: str, library: str, head_dim: float, compute: str) -> Asked | None:
        """The surface of the nearest table, kept; None where no table of this op is known."""
        key = (op, dtype, library, head_dim)
        if key not in self._asked:
            table, exact = self.source.find(op, dtype, library, head_dim)
            self._asked[key] = (
                None
                if table is None
                else asked(
                    self.kind, table, compute, self.floor_seconds, exact and self.source.own, dtype, head_dim
                )
            )
        return self._asked[key]

    def _unfused(self, pairs: Amount, heads: float, head_dim: float) -> Timed:
        """Two batched products over whole score matrices, masked entries too, and passes over these matrices."""
        scores = 2.0 * pairs * heads
        flops, products = 4.0 * scores * head_dim, 4.0 * scores
        bandwidth = MEMORY_EFFICIENCY * self.kind.memory_bandwidth_bytes_per_second
        compute = flops / (_SCORES_EFFICIENCY * self.kind.peak(computes_as(self.kind, ATTENTION_DTYPE)))
        passes = self.stack.kernels.score_bytes * scores
        seconds = _largest(compute, products / bandwidth) + passes / bandwidth
        return Timed(_largest(seconds, self.floor_seconds), flops, products + passes)

    def _roofline(self, work: Work, compute: str, efficiency: float) -> Timed:
        flops, moved = work
        bandwidth = MEMORY_EFFICIENCY * self.kind.memory_bandwidth_bytes_per_second
        seconds = _largest(flops / (efficiency * self.kind.peak(compute)), moved / bandwidth)
        return Timed(_largest(seconds, self.floor_seconds), flops, moved)


def _length(pairs: Amount, tokens: Amount) -> Amount:
    """Of the sequences, 0 where there are none."""
    if isinstance(tokens, float | int):
        return 2.0 * pairs / tokens if tokens else 0.0
    return 2.0 * pairs / np.where(tokens > 0, tokens, 1.0)


def _attention_dtype(dtype: str) -> str:
    """Attention of 8-bit models computes in 16 bits; wider dtypes as they are."""
    return dtype if dtype in ("float32", "float64") else ATTENTION_DTYPE


@lru_cache(maxsize=64)
def kernels_of(machine: Machine) -> Kernels:
    """The kernels of a machine's devices under its stack."""
    return Kernels(machine.kind, machine.stack, source_of(machine.kind))
