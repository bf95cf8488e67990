"""Tables of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.distil.grid import Floats
from rpeg.cost.kernels.distil.package import DTYPES, Columns, columns_of, library_of, newest
from rpeg.cost.kernels.distil.points import Points, table_of
from rpeg.cost.kernels.table import Table
from rpeg.cost.kernels.work import gemm_work, stored

_SIDES = (64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 65536.0)
AXES = {"m": (1.0, 4.0, *(float(2**i) for i in range(4, 16))), "n": _SIDES, "k": _SIDES}

# vLLM 0.24's products with a scale a block start at 60 to 300 µs whatever their size; the others call DeepGEMM.
_LEFT_OUT = {("vllm", "float8-block")}


def tables(kind: DeviceKind, root: Path) -> tuple[list[Table | None], list[str]]:
    """One table a dtype: the engines call the same libraries, and the median of them is freer of outliers."""
    read = [(file, columns_of(file)) for file in newest(root / "gemm", "gemm_perf")]
    out: list[Table | None] = []
    for source, dtype in DTYPES.items():
        engines = [
            _gemm_points(columns, source)
            for file, columns in read
            if source in set(columns["gemm_dtype"]) and (library_of(file), dtype) not in _LEFT_OUT
        ]
        if not engines or stored(dtype) not in dict(kind.peak_flops):
            continue
        shapes, seconds = _medians(engines)
        m, n, k = shapes.T.astype(float)
        points = Points((m, n, k), gemm_work(m, n, k, stored(dtype)), seconds)
        out.append(table_of(kind, "gemm", dtype, "", 0, AXES, points, stored(dtype)))
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
