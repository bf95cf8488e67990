"""`Points`: the measurements of one table, and the table made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.distil.grid import Floats, isotonic, on_grid
from rpeg.cost.kernels.ideal import ideal_seconds
from rpeg.cost.kernels.reference import REFERENCES
from rpeg.cost.kernels.table import STEP, Table
from rpeg.cost.kernels.work import ATTENTION_DTYPE, Work

# What a kernel reaches at most of the advertised peaks. Beyond it a cache served the loop of the measurement, which it
# does not between the layers of a model.
_CAP = 0.95
# A table with a larger share of impossible points (above the peaks although far larger than any cache) is left out.
_IMPOSSIBLE_SHARE = 0.05
_LEAST_POINTS = 50


@dataclass
class Points:
    """Coordinates on the axes of a table, FLOP and bytes, seconds."""

    coordinates: tuple[Floats, ...]
    work: Work
    seconds: Floats


def table_of(
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
    if len(points.seconds) < _LEAST_POINTS:
        return None
    efficiency = ideal_seconds(kind, points.work, compute) / points.seconds
    wrong = impossible_points(kind, efficiency, points.work)
    if wrong.mean() > _IMPOSSIBLE_SHARE:
        return None
    logs = np.log(np.minimum(efficiency, _CAP))[~wrong]
    coordinates = tuple(at[~wrong] for at in points.coordinates)
    grid = tuple(_within(values, at) for values, at in zip(axes.values(), coordinates, strict=True))
    table = Table(op, dtype, library, head_dim, tuple(axes), grid, ())
    ideal = np.log(ideal_seconds(kind, REFERENCES[op](table, *np.meshgrid(*grid, indexing="ij")), compute))
    # Shapes smaller than any measured take at least as long as the fastest kernel that was.
    seconds = np.maximum(ideal - on_grid(grid, coordinates, logs), np.log(points.seconds[~wrong].min()))
    rising = isotonic(seconds)
    whole = np.round((ideal - rising).ravel() / STEP) * STEP
    return replace(table, logs=tuple(whole.tolist()))


def impossible_points(kind: DeviceKind, efficiency: Floats, work: Work) -> Any:
    """Faster than the peaks allow, although far too large for a cache to serve."""
    return (efficiency > 1.05) & (work[1] > 8 * kind.l2_bytes)


def _within(points: tuple[float, ...], measured: Floats) -> tuple[float, ...]:
    """Grid points in the measured range, with a little room for rounding; the nearest where there is none."""
    low, high = float(measured.min()) * 0.99, float(measured.max()) * 1.01
    inside = tuple(point for point in points if low <= point <= high)
    return inside or (min(points, key=lambda point: abs(np.log(point / low))),)
