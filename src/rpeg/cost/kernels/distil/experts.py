"""Tables of feed-forwards over experts on one device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.distil.package import DTYPES, LIBRARIES, Columns, columns_of, library_of, versions
from rpeg.cost.kernels.distil.points import Points, impossible_points, table_of
from rpeg.cost.kernels.ideal import ideal_seconds
from rpeg.cost.kernels.table import Table
from rpeg.cost.kernels.work import experts_touched, experts_work, stored

# rows: routed to all experts of the device. size: hidden times inner width of an expert.
AXES = {
    "rows": tuple(float(2**i) for i in range(1, 19)),
    "experts": (8.0, 32.0, 128.0, 256.0),
    "size": tuple(float(2**i) for i in range(17, 28, 2)),
}
# So many evenly loaded rows make a table of their own.
_ENOUGH = 300


def tables(kind: DeviceKind, root: Path) -> tuple[list[Table | None], list[str]]:
    """Of experts on one device, evenly loaded where that was measured: imbalance is the caller's to count."""
    out, files = [], []
    for engine in sorted(LIBRARIES):
        read = [(file, columns_of(file)) for file in versions(root / "moe", engine, "moe_perf")]
        for source, dtype in DTYPES.items():
            chosen = [
                (file, rows) for file, columns in read if (rows := _expert_rows(columns, source)) is not None
            ]
            if not chosen or stored(dtype) not in dict(kind.peak_flops):
                continue
            # The newest version with enough evenly loaded rows, else the newest.
            even = [(file, rows) for file, rows in chosen if (rows["distribution"] == "balanced").all()]
            file, rows = (even or chosen)[-1]
            points = _experts_points(kind, rows, dtype)
            files.append(str(file))
            out.append(table_of(kind, "experts", dtype, library_of(file), 0, AXES, points, stored(dtype)))
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


def _experts_points(kind: DeviceKind, columns: Columns, dtype: str) -> Points:
    """Without models that are not what they seem, all of whose sizes are left out.

    They have points faster than the peaks allow: feed-forwards without a gate (two matrices, not three), and models
    too large for the device that were measured with fewer experts.
    """
    rows = columns["num_tokens"] * columns["topk"].astype(float)
    experts, hidden = columns["num_experts"].astype(float), columns["hidden_size"].astype(float)
    inner = columns["inter_size"] / columns["moe_tp_size"].astype(float)
    seconds = columns["latency"] * 1e-3
    even = columns["distribution"] == "balanced"
    touched = np.where(even, np.minimum(rows, experts), experts_touched(rows, experts))
    work = experts_work(rows, experts, hidden, inner, stored(dtype), touched)
    # Of skewed rows it is not known how many experts they touch: only even ones tell.
    wrong = even & impossible_points(kind, ideal_seconds(kind, work, stored(dtype)) / seconds, work)
    model = np.stack([hidden, columns["inter_size"], columns["topk"], experts], 1)
    keep = ~np.isin(_rows_as_keys(model), _rows_as_keys(model[wrong]))
    coordinates = (rows, experts, hidden * inner)
    return Points(tuple(at[keep] for at in coordinates), (work[0][keep], work[1][keep]), seconds[keep])


def _rows_as_keys(rows: Any) -> Any:
    return np.asarray([" ".join(f"{value:g}" for value in row) for row in rows], dtype=str)
