"""Tables of attention: prefill and decode, with keys and values of their own or latent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.distil.package import Columns, columns_of, library_of, newest
from rpeg.cost.kernels.distil.points import Points, table_of
from rpeg.cost.kernels.table import Table
from rpeg.cost.kernels.work import (
    MLA_NOPE,
    MLA_RANK,
    MLA_ROPE,
    MLA_VALUE,
    attention_work,
    decode_attention_work,
    latent_attention_work,
    latent_decode_work,
)

_POWERS = tuple(float(2**i) for i in range(24))
# share: KV heads over heads. work: tokens times heads. rows: sequences times KV heads. group: heads over KV heads.
PREFILL_AXES = {"share": (0.25, 1.0), "work": _POWERS[8:24], "length": _POWERS[5:15]}
DECODE_AXES = {"group": (2.0, 16.0, 64.0), "rows": _POWERS[0:15], "context": (2.0, *_POWERS[4:18])}
# Where every head has a cache of its own libraries run another kernel: a table apart.
UNGROUPED_AXES = {"group": (1.0,), "rows": _POWERS[0:15], "context": (2.0, *_POWERS[4:18])}
LATENT_AXES = {"work": _POWERS[6:22], "length": _POWERS[5:15]}
LATENT_DECODE_AXES = {
    "heads": (8.0, 16.0, 32.0, 64.0, 128.0),
    "rows": _POWERS[0:11:2],
    "context": (2.0, *_POWERS[4:18:2]),
}
_CACHES = (("bfloat16", "bfloat16"), ("fp8", "float8"))

Made = list[Table | None]


def prefill_tables(kind: DeviceKind, root: Path) -> tuple[Made, list[str]]:
    out, files = [], []
    for file in newest(root / "attention", "context_attention_perf"):
        columns = columns_of(file)
        files.append(str(file))
        kv = np.where(
            columns["num_key_value_heads"] == 0, columns["num_heads"], columns["num_key_value_heads"]
        )
        plain = (columns["attn_dtype"] == "bfloat16") & (columns["kv_cache_dtype"] == "bfloat16")
        # Fewer heads than 4 on a device are rare and behave otherwise.
        plain &= _unwindowed(columns) & (columns["isl"] >= 16) & (columns["num_heads"] >= 4)
        for head_dim in _head_dims(columns):
            keep = plain & (columns["head_dim"] == head_dim)
            if not keep.any():
                continue
            batch, length, heads = (
                columns[name][keep].astype(float) for name in ("batch_size", "isl", "num_heads")
            )
            tokens = batch * length
            work = attention_work(tokens * length / 2, tokens, heads, kv[keep], head_dim)
            points = Points((kv[keep] / heads, tokens * heads, length), work, columns["latency"][keep] * 1e-3)
            out.append(
                table_of(kind, "attention", "bfloat16", library_of(file), head_dim, PREFILL_AXES, points)
            )
    return out, files


def decode_tables(kind: DeviceKind, root: Path) -> tuple[Made, list[str]]:
    out, files = [], []
    for file in newest(root / "attention", "generation_attention_perf"):
        columns = columns_of(file)
        files.append(str(file))
        for source, dtype in _CACHES:
            plain = (columns["kv_cache_dtype"] == source) & (columns["attn_dtype"] == "bfloat16")
            plain &= _unwindowed(columns)
            for head_dim in _head_dims(columns):
                keep = plain & (columns["head_dim"] == head_dim)
                group = _group(columns)
                for op, axes, chosen in (
                    ("decode_attention", DECODE_AXES, keep & (group > 1)),
                    ("decode_attention_ungrouped", UNGROUPED_AXES, keep & (group == 1)),
                ):
                    points = _decode_points(columns, chosen, head_dim, dtype)
                    out.append(table_of(kind, op, dtype, library_of(file), head_dim, axes, points))
    return out, files


def _group(columns: Columns) -> Any:
    """Heads a KV head; no KV heads at all means as many as heads."""
    kv = columns["num_key_value_heads"]
    return columns["num_heads"] / np.where(kv == 0, columns["num_heads"], kv)


def _decode_points(columns: Columns, keep: Any, head_dim: int, dtype: str) -> Points:
    group = _group(columns)[keep]
    batch, heads = (columns[name][keep].astype(float) for name in ("batch_size", "num_heads"))
    kv, context = heads / group, columns["step"][keep] + 1.0
    work = decode_attention_work(batch, context, heads, kv, head_dim, dtype)
    return Points((group, batch * kv, context), work, columns["latency"][keep] * 1e-3)


def latent_tables(kind: DeviceKind, root: Path) -> tuple[Made, list[str]]:
    out, files = [], []
    for file in newest(root / "mla", "context_mla_perf"):
        columns = columns_of(file)
        keep = (columns["kv_cache_dtype"] == "bfloat16") & (columns["isl"] >= 16)
        batch, length, heads = (
            columns[name][keep].astype(float) for name in ("batch_size", "isl", "num_heads")
        )
        tokens = batch * length
        work = latent_attention_work(tokens * length / 2, tokens, heads, MLA_NOPE, MLA_ROPE, MLA_VALUE)
        points = Points((tokens * heads, length), work, columns["latency"][keep] * 1e-3)
        out.append(table_of(kind, "latent_attention", "bfloat16", library_of(file), 0, LATENT_AXES, points))
        files.append(str(file))
    for file in newest(root / "mla", "generation_mla_perf"):
        columns = columns_of(file)
        files.append(str(file))
        for source, dtype in _CACHES:
            keep = columns["kv_cache_dtype"] == source
            if not keep.any():
                continue
            batch, heads = (columns[name][keep].astype(float) for name in ("batch_size", "num_heads"))
            context = columns["step"][keep] + 1.0
            work = latent_decode_work(batch, context, heads, MLA_RANK, MLA_ROPE, dtype)
            points = Points((heads, batch, context), work, columns["latency"][keep] * 1e-3)
            out.append(
                table_of(kind, "latent_decode", dtype, library_of(file), 0, LATENT_DECODE_AXES, points)
            )
    return out, files


def _unwindowed(columns: Columns) -> Any:
    return columns["window_size"] == 0 if "window_size" in columns else np.ones(len(columns["latency"]), bool)


def _head_dims(columns: Columns) -> list[int]:
    return [int(size) for size in np.unique(columns["head_dim"]) if size in (64, 128, 256)]
