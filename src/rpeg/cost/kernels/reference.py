"""Work of the shapes that a table's coordinates stand for: what its efficiencies are counted against."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rpeg.cost.kernels.table import Table
from rpeg.cost.kernels.work import (
    MLA_NOPE,
    MLA_RANK,
    MLA_ROPE,
    MLA_VALUE,
    Amount,
    Work,
    attention_work,
    decode_attention_work,
    experts_work,
    gemm_work,
    latent_attention_work,
    latent_decode_work,
    stored,
)

# FLOP and bytes at coordinates of a table's axes.
Reference = Callable[..., Work]


def _gemm_ideal(table: Table, m: Amount, n: Amount, k: Amount) -> Work:
    return gemm_work(m, n, k, stored(table.dtype))


def _attention_ideal(table: Table, share: Amount, work: Amount, length: Amount) -> Work:
    return attention_work(work * length / 2, work, 1.0, share, table.head_dim)


def _decode_ideal(table: Table, group: Amount, rows: Amount, context: Amount) -> Work:
    return decode_attention_work(rows, context, group, 1.0, table.head_dim, table.dtype)


def _experts_ideal(table: Table, rows: Amount, experts: Amount, size: Amount) -> Work:
    side = np.sqrt(size)
    return experts_work(rows, experts, side, side, stored(table.dtype))


def _latent_ideal(table: Table, work: Amount, length: Amount) -> Work:
    return latent_attention_work(work * length / 2, work, 1.0, MLA_NOPE, MLA_ROPE, MLA_VALUE)


def _latent_decode_ideal(table: Table, heads: Amount, rows: Amount, context: Amount) -> Work:
    return latent_decode_work(rows, context, heads, MLA_RANK, MLA_ROPE, table.dtype)


def _memory_ideal(table: Table, size: Amount) -> Work:
    return 0.0, size


REFERENCES: Mapping[str, Reference] = {
    "gemm": _gemm_ideal,
    "attention": _attention_ideal,
    "decode_attention": _decode_ideal,
    "decode_attention_ungrouped": _decode_ideal,
    "experts": _experts_ideal,
    "latent_attention": _latent_ideal,
    "latent_decode": _latent_decode_ideal,
    "memory": _memory_ideal,
}
