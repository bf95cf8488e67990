"""FLOP and bytes of single kernels: what their efficiency is counted against, in tables and in estimates alike.

Sizes are numbers or arrays of them. A byte count is the least that must pass the memory bus: operands once in, result
once out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rpeg.cost.precision import BYTES_OF

# A number, or an array of them where many shapes are asked at once; the answer is of the same form.
Amount = Any
# What is loaded, in FLOP and in bytes.
Work = tuple[Amount, Amount]

_RESULT_BYTES = 2.0  # 16-bit results, also of products in 8 and 4 bits
ATTENTION_DTYPE = "bfloat16"  # scores and values are computed so whatever the cache holds

# DeepSeek-V3's latent attention, the only geometry with measured kernels (arXiv:2412.19437, §4.2).
MLA_RANK, MLA_ROPE, MLA_NOPE, MLA_VALUE = 512, 64, 128, 128


def stored(dtype: str) -> str:
    """The dtype in which operands lie: float8-block is float8 with a scale for every block."""
    return dtype.removesuffix("-block")


def gemm_work(m: Amount, n: Amount, k: Amount, dtype: str) -> Work:
    """(m, k) × (k, n)."""
    size = BYTES_OF[stored(dtype)]
    result = max(_RESULT_BYTES, size) if size >= 2 else _RESULT_BYTES
    return 2.0 * m * n * k, size * (m * k + n * k) + result * m * n


def attention_work(pairs: Amount, tokens: Amount, heads: Amount, kv_heads: Amount, head_dim: float) -> Work:
    """`pairs` of a query and a key that it sees, of all sequences together; causal: length² / 2 each."""
    flops = 4.0 * pairs * heads * head_dim
    return flops, 2.0 * tokens * (2 * heads + 2 * kv_heads) * head_dim


def decode_attention_work(
    rows: Amount, context: Amount, heads: Amount, kv_heads: Amount, head_dim: float, dtype: str
) -> Work:
    """One query a row against its cache of `context` tokens in `dtype`."""
    flops = 4.0 * rows * context * heads * head_dim
    cache = BYTES_OF[dtype] * 2 * rows * context * kv_heads * head_dim
    return flops, cache + 2.0 * 2 * rows * heads * head_dim


def latent_attention_work(
    pairs: Amount, tokens: Amount, heads: Amount, nope: float, rope: float, value: float
) -> Work:
    """Multi-head latent attention as a prefill runs it: keys and values expanded to every head."""
    flops = 2.0 * pairs * heads * (nope + rope + value)
    return flops, 2.0 * tokens * heads * 2 * (nope + rope + value)


def latent_decode_work(
    rows: Amount, context: Amount, heads: Amount, rank: float, rope: float, dtype: str
) -> Work:
    """Latent attention as decoding runs it: the queries are absorbed and all heads read one latent of rank + rope."""
    flops = 2.0 * rows * context * heads * (2 * rank + rope)
    return flops, BYTES_OF[dtype] * rows * context * (rank + rope) + 2.0 * rows * heads * (2 * rank + rope)


def experts_work(
    rows: Amount, experts: Amount, hidden: Amount, inner: Amount, dtype: str, touched: Amount | None = None
) -> Work:
    """Gated feed-forward of `rows` routed tokens over `experts` of this device: gate, up and down.

    touched: experts that get any row, hence have their weights read; by default of rows drawn evenly.
    """
    read = experts_touched(rows, experts) if touched is None else touched
    size, weights = BYTES_OF[stored(dtype)], 3.0 * hidden * inner
    return 2.0 * rows * weights, size * read * weights + _RESULT_BYTES * rows * (2 * hidden + 3 * inner)


def experts_touched(rows: Amount, experts: Amount) -> Amount:
    """Expected number of experts that get at least one of `rows` drawn evenly: E · (1 − (1 − 1/E)^rows)."""
    return np.minimum(rows, experts * -np.expm1(rows * np.log1p(-1.0 / np.maximum(experts, 1.0 + 1e-9))))
