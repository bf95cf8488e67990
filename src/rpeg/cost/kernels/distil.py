"""From the measured kernels of an `aiconfigurator-core` installation to tables of efficiency.

The package (Apache-2.0) holds hundreds of thousands of timings of data-centre GPUs as Parquet files,
``systems/data/<system>/<op>/<engine>/<version>/<name>.parquet``; latencies are in milliseconds. A table keeps a grid of
shapes: each node is the weighted mean of the logarithms of efficiency measured in its cells. Nothing is fitted.
`pyarrow` is imported only when something is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.ideal import ideal_seconds
from rpeg.cost.kernels.table import STEP, Table
from rpeg.cost.kernels.work import (
    ATTENTION_DTYPE,
    MLA_NOPE,
    MLA_RANK,
    MLA_ROPE,
    MLA_VALUE,
    Work,
    attention_work,
    decode_attention_work,
    experts_touched,
    experts_work,
    gemm_work,
    latent_attention_work,
    latent_decode_work,
    stored,
)

Floats = npt.NDArray[np.float64]
Columns = dict[str, Any]
Made = list[Table | None]

# Directories of the package by our names of device kinds.
SYSTEMS = {
    "a100-80gb-sxm": "a100_sxm",
    "h100-sxm": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
}
LIBRARIES = {"vllm": "vllm", "trtllm": "tensorrt-llm", "sglang": "sglang"}
DTYPES = {"bfloat16": "bfloat16", "fp8": "float8", "fp8_block": "float8-block", "nvfp4": "float4"}

_POWERS = tuple(float(2**i) for i in range(24))
GEMM_AXES = {
    "m": (1.0, 4.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0),
    "n": (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 65536.0),
    "k": (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 65536.0),
}
ATTENTION_AXES = {"group": (1.0, 4.0), "work": _POWERS[8:24], "length": _POWERS[5:15]}
DECODE_AXES = {"group": (1.0, 16.0, 64.0), "rows": _POWERS[0:15], "context": (2.0, *_POWERS[4:18])}
EXPERTS_AXES = {
    "load": tuple(float(2.0**i) for i in range(-5, 13)),
    "experts": (8.0, 32.0, 128.0, 256.0),
    "size": tuple(float(2**i) for i in range(17, 28, 2)),
}
LATENT_AXES = {"work": _POWERS[6:22:1], "length": _POWERS[5:15]}
LATENT_DECODE_AXES = {
    "heads": (8.0, 16.0, 32.0, 64.0, 128.0),
    "rows": _POWERS[0:11:2],
    "context": (2.0, *_POWERS[4:18:2]),
}


# So many evenly loaded rows make a table of their own.
_ENOUGH = 300
# What a kernel reaches at most of the advertised peaks. Beyond it a cache served the loop of the measurement, which it
# does not between the layers of a model.
_CAP = 0.95
# A table with a larger share of impossible points (above the peaks although far larger than any cache) is left out.
_IMPOSSIBLE_SHARE = 0.3
# A point counts as on a node when its product of nearnesses (1 there, 0 a node further) exceeds this.
_ON_NODE = 0.8


@dataclass
class Points:
    """Measured points of one table: coordinates, FLOP and bytes, seconds; files: what they were read from."""

    coordinates: tuple[Floats, ...]
    work: Work
    seconds: Floats
    files: list[str] = field(default_factory=list)


def distil(kind: DeviceKind, data: Path) -> tuple[list[Table], list[str]]:
    """Every table that the package's data folder yields for a kind, and the files that they rest on."""
    root = data / SYSTEMS[kind.name]
    tables: list[Table] = []
    files: list[str] = []
    for read in (_gemm_tables, _attention_tables, _decode_tables, _experts_tables, _latent_tables):
        made, used = read(kind, root)
        tables += [table for table in made if table is not None]
        files += used
    return tables, sorted({str(Path(file).relative_to(data)) for file in files})


def _gemm_tables(kind: DeviceKind, root: Path) -> tuple[Made, list[str]]:
    """One table a dtype: the engines call the same libraries, and the median of them is freer of outliers."""
    read = [(file, columns_of(file)) for file in _newest(root / "gemm", "gemm_perf")]
    out = []
    for source, dtype in DTYPES.items():
        engines = [
            _gemm_points(columns, source) for _, columns in read if source in set(columns["gemm_dtype"])
        ]
        if not engines or not _computes(kind, dtype):
            continue
        shapes, seconds = _medians(engines)
        m, n, k = shapes.T.astype(float)
        points = Points((m, n, k), gemm_work(m, n, k, stored(dtype)), seconds)
        out.append(_table(kind, "gemm", dtype, "", 0, GEMM_AXES, points, stored(dtype)))
    return out, [str(file) for file, _ in read]


def _gemm_points(columns: Columns, dtype: str) -> tuple[Any, Floats]:
    m = columns["m"]
    # Beyond a few rows batches are padded to even sizes; sizes such as 4,097 only measure the tile that this avoids.
    keep = (columns["gemm_dtype"] == dtype) & ((m <= 16) | (m % 2 == 0))
    return np.stack([m[keep], columns["n"][keep], columns["k"][keep]], 1), columns["latency"][keep] * 1e-3


def _medians(engines: Sequence[tuple[Any, Floats]]) -> tuple[Any, Floats]:
    """Shapes that any engine measured, and the median seconds of those that did."""
    shapes = np.concatenate([shape for shape, _ in engines])
    seconds = np.concatenate([time for _, time in engines])
    unique, inverse = np.unique(shapes, axis=0, return_inverse=True)
    order = np.lexsort((seconds, inverse.ravel()))
    groups = np.split(seconds[order], np.cumsum(np.bincount(inverse.ravel()))[:-1])
    return unique, np.asarray([np.median(group) for group in groups])


def _attention_tables(kind: DeviceKind, root: Path) -> tuple[Made, list[str]]:
    out, files = [], []
    for file in _newest(root / "attention", "context_attention_perf"):
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
            points = Points((heads / kv[keep], tokens * heads, length), work, columns["latency"][keep] * 1e-3)
            out.append(
                _table(kind, "attention", "bfloat16", _library(file), head_dim, ATTENTION_AXES, points)
            )
    return out, files


def _decode_tables(kind: DeviceKind, root: Path) -> tuple[Made, list[str]]:
    out, files = [], []
    for file in _newest(root / "attention", "generation_attention_perf"):
        columns = columns_of(file)
        files.append(str(file))
        for source, dtype in (("bfloat16", "bfloat16"), ("fp8", "float8")):
            plain = (columns["kv_cache_dtype"] == source) & _unwindowed(columns)
            for head_dim in _head_dims(columns):
                keep = plain & (columns["head_dim"] == head_dim) & (columns["attn_dtype"] == "bfloat16")
                if not keep.any():
                    continue
                names = ("batch_size", "num_heads", "num_key_value_heads")
                batch, heads, kv = (columns[name][keep].astype(float) for name in names)
                kv = np.where(kv == 0, heads, kv)
                context = columns["step"][keep] + 1.0
                work = decode_attention_work(batch, context, heads, kv, head_dim, dtype)
                points = Points((heads / kv, batch * kv, context), work, columns["latency"][keep] * 1e-3)
                out.append(
                    _table(kind, "decode_attention", dtype, _library(file), head_dim, DECODE_AXES, points)
                )
    return out, files


def _experts_tables(kind: DeviceKind, root: Path) -> tuple[Made, list[str]]:
    """Of experts on one device, evenly loaded where that was measured: imbalance is the caller's to count."""
    out, files = [], []
    for engine in sorted(LIBRARIES):
        read = [(file, columns_of(file)) for file in versions(root / "moe", engine, "moe_perf")]
        for source, dtype in DTYPES.items():
            chosen = [
                (file, rows) for file, columns in read if (rows := _expert_rows(columns, source)) is not None
            ]
            if not chosen or not _computes(kind, dtype):
                continue
            # The newest version with enough evenly loaded rows, else the newest.
            even = [(file, rows) for file, rows in chosen if (rows["distribution"] == "balanced").all()]
            file, rows = (even or chosen)[-1]
            points = _experts_points(rows, dtype)
            files.append(str(file))
            out.append(_table(kind, "experts", dtype, _library(file), 0, EXPERTS_AXES, points, stored(dtype)))
    return out, files


def _expert_rows(columns: Columns, dtype: str) -> Columns | None:
    """Rows of all experts of a layer on one device, of the kernel that was measured most; None without any."""
    keep = (columns["moe_dtype"] == dtype) & (columns["moe_ep_size"] == 1)
    keep &= columns["inter_size"] / columns["moe_tp_size"] >= 64
    if not keep.any():
        return None
    sources, counts = np.unique(columns["kernel_source"][keep], return_counts=True)
    keep &= columns["kernel_source"] == sources[np.argmax(counts)]
    even = keep & (columns["distribution"] == "balanced")
    keep = even if even.sum() >= _ENOUGH else keep
    return {name: values[keep] for name, values in columns.items()}


def _experts_points(columns: Columns, dtype: str) -> Points:
    rows = columns["num_tokens"] * columns["topk"].astype(float)
    experts, hidden = columns["num_experts"].astype(float), columns["hidden_size"].astype(float)
    inner = columns["inter_size"] / columns["moe_tp_size"].astype(float)
    even = columns["distribution"] == "balanced"
    touched = np.where(even, np.minimum(rows, experts), experts_touched(rows, experts))
    work = experts_work(rows, experts, hidden, inner, stored(dtype), touched)
    return Points((rows / experts, experts, hidden * inner), work, columns["latency"] * 1e-3)


def _latent_tables(kind: DeviceKind, root: Path) -> tuple[Made, list[str]]:
    out, files = [], []
    for file in _newest(root / "mla", "context_mla_perf"):
        columns = columns_of(file)
        keep = (columns["kv_cache_dtype"] == "bfloat16") & (columns["isl"] >= 16)
        batch, length, heads = (
            columns[name][keep].astype(float) for name in ("batch_size", "isl", "num_heads")
        )
        tokens = batch * length
        work = latent_attention_work(tokens * length / 2, tokens, heads, MLA_NOPE, MLA_ROPE, MLA_VALUE)
        points = Points((tokens * heads, length), work, columns["latency"][keep] * 1e-3)
        out.append(_table(kind, "latent_attention", "bfloat16", _library(file), 0, LATENT_AXES, points))
        files.append(str(file))
    for file in _newest(root / "mla", "generation_mla_perf"):
        columns = columns_of(file)
        files.append(str(file))
        for source, dtype in (("bfloat16", "bfloat16"), ("fp8", "float8")):
            keep = columns["kv_cache_dtype"] == source
            if not keep.any():
                continue
            batch, heads = (columns[name][keep].astype(float) for name in ("batch_size", "num_heads"))
            context = columns["step"][keep] + 1.0
            work = latent_decode_work(batch, context, heads, MLA_RANK, MLA_ROPE, dtype)
            points = Points((heads, batch, context), work, columns["latency"][keep] * 1e-3)
            out.append(_table(kind, "latent_decode", dtype, _library(file), 0, LATENT_DECODE_AXES, points))
    return out, files


def _table(
    kind: DeviceKind,
    op: str,
    dtype: str,
    library: str,
    head_dim: int,
    axes: dict[str, tuple[float, ...]],
    points: Points,
    compute: str = ATTENTION_DTYPE,
) -> Table | None:
    """None where the measurements are not to be believed."""
    efficiency = ideal_seconds(kind, points.work, compute) / points.seconds
    impossible = (efficiency > 1.05) & (points.work[1] > 8 * kind.l2_bytes)
    if impossible.mean() > _IMPOSSIBLE_SHARE:
        return None
    logs = np.log(np.minimum(efficiency, _CAP))[~impossible]
    coordinates = tuple(at[~impossible] for at in points.coordinates)
    trimmed = {
        name: _within(values, at) for (name, values), at in zip(axes.items(), coordinates, strict=True)
    }
    grid = on_grid(tuple(trimmed.values()), coordinates, logs)
    whole = np.round(grid.ravel() / STEP) * STEP
    return Table(op, dtype, library, head_dim, tuple(trimmed), tuple(trimmed.values()), tuple(whole.tolist()))


def _within(points: tuple[float, ...], measured: Floats) -> tuple[float, ...]:
    """Grid points in the measured range, with a little room for rounding; the nearest where there is none."""
    low, high = float(measured.min()) * 0.99, float(measured.max()) * 1.01
    inside = tuple(point for point in points if low <= point <= high)
    return inside or (min(points, key=lambda point: abs(np.log(point / low))),)


def on_grid(axes: Sequence[Sequence[float]], coordinates: Sequence[Floats], values: Floats) -> Floats:
    """Values at scattered coordinates as a grid: each node the mean of those on it.

    A node without any takes the mean of its cells, weighted by nearness; one without those, of its neighbours.
    """
    shape = tuple(len(points) for points in axes)
    total, weight = np.zeros((2, *shape)), np.zeros((2, *shape))
    places = [_place(np.log(points), np.log(at)) for points, at in zip(axes, coordinates, strict=True)]
    for corner in np.ndindex(*(2,) * len(shape)):
        share = np.ones(len(values))
        index = []
        for side, (low, part), size in zip(corner, places, shape, strict=True):
            share = share * (part if side else 1 - part)
            index.append(np.minimum(low + side, size - 1))
        for pass_, chosen in enumerate((np.where(share > _ON_NODE, share, 0.0), share**2)):
            np.add.at(total[pass_], tuple(index), chosen * values)
            np.add.at(weight[pass_], tuple(index), chosen)
    means = np.divide(total, weight, out=np.zeros(total.shape), where=weight > 1e-9)
    return _filled(np.where(weight[0] > 0, means[0], means[1]), weight[1] > 1e-9)


def _place(points: Floats, at: Floats) -> tuple[Any, Floats]:
    low = np.clip(np.searchsorted(points, at, side="right") - 1, 0, max(0, len(points) - 2))
    width = points[np.minimum(low + 1, len(points) - 1)] - points[low]
    inside = np.clip(at, points[0], points[-1])
    return low, np.divide(inside - points[low], width, out=np.zeros(len(at)), where=width > 0)


def _filled(values: Floats, known: npt.NDArray[np.bool_]) -> Floats:
    while not known.all():
        total, count = np.zeros(values.shape), np.zeros(values.shape)
        for axis in range(values.ndim):
            for shift in (1, -1):
                total += _shifted(np.where(known, values, 0.0), axis, shift)
                count += _shifted(known.astype(float), axis, shift)
        new = ~known & (count > 0)
        if not new.any():
            raise ValueError("a table without any measured point")
        values = np.where(new, np.divide(total, count, out=np.zeros(values.shape), where=count > 0), values)
        known = known | new
    return values


def _shifted(values: Floats, axis: int, by: int) -> Floats:
    out = np.roll(values, by, axis)
    edge: list[slice | int] = [slice(None)] * values.ndim
    edge[axis] = 0 if by > 0 else -1
    out[tuple(edge)] = 0.0
    return out


def versions(folder: Path, engine: str, name: str) -> list[Path]:
    """The files of this name of all versions of an engine, oldest first."""
    return sorted(folder.glob(f"{engine}/*/{name}.parquet"), key=lambda file: _version(file.parent.name))


def _newest(folder: Path, name: str) -> list[Path]:
    """The file of this name of each engine's newest version."""
    return [files[-1] for engine in sorted(LIBRARIES) if (files := versions(folder, engine, name))]


def _version(text: str) -> tuple[tuple[int, str], ...]:
    """Sorts 0.10 after 0.9 and rc20 after rc9."""
    parts: list[tuple[int, str]] = []
    for part in text.replace("rc", ".-1.").split("."):
        parts.append((int(part), "") if part.lstrip("-").isdigit() else (0, part))
    return tuple(parts)


def _library(file: Path) -> str:
    return LIBRARIES[file.parent.parent.name]


def columns_of(file: Path) -> Columns:
    parquet = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(file)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def _unwindowed(columns: Columns) -> Any:
    return columns["window_size"] == 0 if "window_size" in columns else np.ones(len(columns["latency"]), bool)


def _head_dims(columns: Columns) -> list[int]:
    return [int(size) for size in np.unique(columns["head_dim"]) if size in (64, 128, 256)]


def _computes(kind: DeviceKind, dtype: str) -> bool:
    return stored(dtype) in dict(kind.peak_flops)
