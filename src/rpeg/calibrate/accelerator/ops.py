"""The kernels that are timed: for each table its axes and, at each shape, calls on memory of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from rpeg.calibrate.accelerator.clock import Call
from rpeg.calibrate.accelerator.grids import Grids, Points

# Calls rotate over copies that together exceed the last cache so often, of at most so many copies.
_CACHES, _MOST_COPIES = 2, 8


@dataclass(frozen=True)
class Op:
    """A table to be measured. calls: at coordinates of the axes."""

    op: str
    dtype: str
    head_dim: int
    axes: dict[str, Points]
    calls: Callable[..., list[Call]]


def ops(grids: Grids, device: torch.device, dtype: str, cache_bytes: int) -> Iterator[Op]:
    """Every table in one dtype."""
    make = _Maker(device, getattr(torch, dtype), cache_bytes)
    sides = grids.sides
    yield Op("gemm", dtype, 0, {"m": grids.m, "n": sides, "k": sides}, make.products)
    for head_dim in grids.head_dims:
        axes = {"share": grids.share, "work": grids.work, "length": grids.length}
        yield Op("attention", dtype, head_dim, axes, partial(make.attention, grids.heads, head_dim))
        axes = {"group": grids.group, "rows": grids.rows, "context": grids.context}
        yield Op("decode_attention", dtype, head_dim, axes, partial(make.decode, grids.kv_heads, head_dim))
    yield Op("memory", "", 0, {"bytes": grids.sizes}, make.passes)


@dataclass(frozen=True)
class _Maker:
    device: torch.device
    dtype: torch.dtype
    cache_bytes: int

    def products(self, m: float, n: float, k: float) -> list[Call]:
        """(m, k) × (k, n), the weights as a linear layer keeps them."""
        rows, columns, inner = int(m), int(n), int(k)

        def once() -> Call:
            x, w = self._random(rows, inner), self._random(columns, inner)
            return partial(torch.nn.functional.linear, x, w)

        return self._copies(once, (rows * inner + columns * inner) * self.dtype.itemsize)

    def attention(self, heads: int, head_dim: int, share: float, work: float, length: float) -> list[Call]:
        """Causal, over as many sequences as make up the work."""
        tokens, batch = int(length), max(1, round(work / (length * heads)))
        kv_heads = max(1, round(heads * share))

        def once() -> Call:
            q = self._random(batch, heads, tokens, head_dim)
            k, v = (self._random(batch, kv_heads, tokens, head_dim) for _ in range(2))
            return partial(
                scaled_dot_product_attention, q, k, v, is_causal=True, enable_gqa=kv_heads != heads
            )

        return self._copies(once, 4 * batch * heads * tokens * head_dim * self.dtype.itemsize)

    def decode(self, kv_heads: int, head_dim: int, group: float, rows: float, context: float) -> list[Call]:
        """One query a sequence over its cache."""
        batch, length, heads = max(1, round(rows / kv_heads)), int(context), round(group * kv_heads)

        def once() -> Call:
            q = self._random(batch, heads, 1, head_dim)
            k, v = (self._random(batch, kv_heads, length, head_dim) for _ in range(2))
            return partial(scaled_dot_product_attention, q, k, v, enable_gqa=heads != kv_heads)

        return self._copies(once, 2 * batch * kv_heads * length * head_dim * self.dtype.itemsize)

    def passes(self, size: float) -> list[Call]:
        """Half of the bytes are read, half written."""
        count = max(1, int(size) // 2 // self.dtype.itemsize)

        def once() -> Call:
            x = self._random(count)
            return partial(torch.mul, x, 2.0, out=torch.empty_like(x))

        return self._copies(once, int(size))

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=self.device, dtype=self.dtype)

    def _copies(self, once: Callable[[], Call], size_bytes: int) -> list[Call]:
        count = 1 + _CACHES * self.cache_bytes // max(size_bytes, 1)
        return [once() for _ in range(min(_MOST_COPIES, count))]
