"""`Table`: efficiency of one kernel over a grid of shapes, and seconds at any shape from it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.errors import InputError

Floats = npt.NDArray[np.float64]
# Files keep the logarithm of 1 / efficiency in whole hundredths: at most 0.5 % are lost.
STEP = 0.01
# Octaves below and above the measured points for which surfaces are made.
_FAR = (2, 4)
_BEYOND = {"share": (6, 0)}  # of key and value heads to heads: measured down to a quarter, and 1 at most


@dataclass(frozen=True)
class Table:
    """How near to the roofline a kernel comes, at every combination of the points of its axes.

    op: gemm, attention … library: whose kernel, "" where libraries share it. head_dim: 0 where it has none.
    points: ascending positive numbers of each axis. logs: natural logarithms of the efficiency, last axis fastest.
    Efficiency is seconds at the advertised peaks (`rpeg.cost.kernels.work` counts FLOP and bytes) over seconds
    measured; it exceeds 1 where a cache serves what the count takes from memory.
    """

    op: str
    dtype: str
    library: str
    head_dim: int
    axes: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]
    logs: tuple[float, ...]

    def __post_init__(self) -> None:
        for axis, points in zip(self.axes, self.points, strict=True):
            if not points or points[0] <= 0 or any(a >= b for a, b in itertools.pairwise(points)):
                raise InputError(
                    f"kernel table {self.op}: axis {axis} has points {points}: ascending ones are needed"
                )
        if self.logs and len(self.logs) != math.prod(len(points) for points in self.points):
            raise InputError(f"kernel table {self.op}: {len(self.logs)} entries for axes of {self.points}")

    def efficiency(self, coordinates: list[Floats]) -> Floats:
        """At the combinations of these coordinates of the axes: linear in logarithms, beyond the grid its edge's."""
        values: Floats = np.asarray(self.logs).reshape([len(points) for points in self.points])
        for axis, (points, at) in enumerate(zip(self.points, coordinates, strict=True)):
            values = _resample(values, axis, np.log(points), np.log(at))
        out: Floats = np.exp(values)
        return out

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {
            "op": self.op,
            "dtype": self.dtype,
            "library": self.library,
            "head_dim": self.head_dim,
            "axes": dict(zip(self.axes, map(list, self.points), strict=True)),
            "log_inverse_efficiency": [round(-value / STEP) for value in self.logs],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Table:
        """The table that `to_json` wrote. InputError says what is wrong with it."""
        try:
            axes: Mapping[str, Any] = data["axes"]
            return Table(
                str(data["op"]),
                str(data["dtype"]),
                str(data["library"]),
                int(data["head_dim"]),
                tuple(axes),
                tuple(tuple(float(p) for p in points) for points in axes.values()),
                tuple(-STEP * float(value) for value in data["log_inverse_efficiency"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"a kernel table is broken: {error!r}") from error


def _resample(values: Floats, axis: int, old: Floats, new: Floats) -> Floats:
    """Linear interpolation along one axis; the edge's value beyond it."""
    index = np.clip(np.searchsorted(old, new, side="right") - 1, 0, max(0, len(old) - 2))
    upper = np.minimum(index + 1, len(old) - 1)
    width = old[upper] - old[index]
    weight = np.divide(
        np.clip(new, old[0], old[-1]) - old[index], width, out=np.zeros(len(new)), where=width > 0
    )
    shape = [1] * values.ndim
    shape[axis] = len(new)
    weight = weight.reshape(shape)
    out: Floats = values.take(index, axis) * (1 - weight) + values.take(upper, axis) * weight
    return out


@dataclass(frozen=True, eq=False)
class Surface:
    """Logarithm of seconds over an even grid of logarithms, rising along every axis.

    starts, steps: of each axis, in natural logarithms. logs: of seconds.
    """

    starts: tuple[float, ...]
    steps: tuple[float, ...]
    logs: Floats

    @cached_property
    def least_seconds(self) -> float:
        """The fastest kernel of the table."""
        return float(np.exp(self.logs.min()))

    @cached_property
    def ends(self) -> tuple[tuple[float, float], ...]:
        """The first and the last coordinate of each axis."""
        sizes = self.logs.shape
        return tuple(
            (math.exp(start), math.exp(start + step * (size - 1)))
            for start, step, size in zip(self.starts, self.steps, sizes, strict=True)
        )

    def at(self, *where: Any) -> Any:
        """Seconds, linear in logarithms between points; outside the grid its edge. Numbers or arrays."""
        values: Any = self.logs
        lows: list[Any] = []
        shares: list[Floats] = []
        for x, start, step in zip(where, self.starts, self.steps, strict=True):
            axis = len(lows)
            last = values.shape[axis] - 1
            if isinstance(x, float | int):
                place = min(max((math.log(max(x, 1e-300)) - start) / step, 0.0), float(last))
                low = min(int(place), max(0, last - 1))
                values = _between(values, axis, low, place - low)
            else:
                places = (np.log(np.maximum(x, 1e-300)) - start) / step
                places = np.minimum(np.maximum(places, 0.0), float(last))
                index = np.minimum(places.astype(np.int64), max(0, last - 1))
                lows.append(index)
                shares.append(places - index)
        return np.exp(_blend(values, lows, shares)) if lows else math.exp(values)


def _between(values: Floats, axis: int, low: int, share: float) -> Any:
    """The slice at low + share along an axis."""
    before: tuple[Any, ...] = (slice(None),) * axis
    first = values[(*before, low)]
    return first if share == 0.0 else first * (1 - share) + values[(*before, low + 1)] * share


def _blend(values: Floats, lows: list[Any], shares: list[Floats]) -> Floats:
    """Multilinear interpolation between the corners of the cells that start at `lows`."""
    flat, base, stride = values.ravel(), 0, 1
    strides: list[int] = []
    for low, size in zip(reversed(lows), reversed(values.shape), strict=True):
        base = base + low * stride
        strides.append(stride if size > 1 else 0)
        stride *= size
    sides = [flat[base + sum(corner)] for corner in itertools.product(*((0, n) for n in reversed(strides)))]
    for share in reversed(shares):
        sides = [a + (b - a) * share for a, b in zip(sides[::2], sides[1::2], strict=True)]
    out: Floats = sides[0]
    return out


def surface(
    table: Table,
    ideal: Callable[..., Floats],
    floor_seconds: float,
    per_octave: int = 2,
) -> Surface:
    """Seconds over the table's range and some octaves around it: `ideal` seconds of open coordinate grids over the
    efficiency, which beyond the measured points is that of the nearest; there no kernel is faster than the fastest
    within.

    Measurements are noisy; where more work was measured to take less time, the surface runs midway between the largest
    entry below and the smallest above, which rises along every axis.
    """
    starts, steps, coordinates, within = [], [], [], []
    for axis, points in zip(table.axes, table.points, strict=True):
        octaves = math.log2(points[-1] / points[0])
        count = max(1, math.ceil(octaves * per_octave)) + 1
        step = (math.log(points[-1] / points[0]) / (count - 1)) or 1.0
        below, above = (math.ceil(octaves * math.log(2) / step) for octaves in _BEYOND.get(axis, _FAR))
        starts.append(math.log(points[0]) - below * step)
        steps.append(step)
        coordinates.append(points[0] * np.exp(step * np.arange(-below, count + above)))
        within.append(slice(below, below + count))
    grids = np.meshgrid(*coordinates, indexing="ij", sparse=True)
    seconds = np.maximum(ideal(*grids) / table.efficiency(coordinates), floor_seconds)
    seconds = np.maximum(seconds, seconds[tuple(within)].min())
    return Surface(tuple(starts), tuple(steps), _rising(np.log(seconds)))


def _rising(values: Floats) -> Floats:
    above, below = values, values
    for axis in range(values.ndim):
        above = np.maximum.accumulate(above, axis=axis)
        below = np.flip(np.minimum.accumulate(np.flip(below, axis), axis=axis), axis)
    return (above + below) / 2
