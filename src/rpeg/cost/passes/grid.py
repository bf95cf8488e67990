"""`Grid`: measured seconds over a grid of shapes, and what lies between and beyond its points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.errors import InputError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """Seconds of one op at every combination of the points of its axes.

    axes: names, such as ("rows", "context"). points: ascending positive numbers of each axis.
    seconds: flat, the last axis fastest. An op without axes takes the same time always.
    """

    axes: tuple[str, ...]
    points: tuple[tuple[float, ...], ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.points):
            raise InputError(f"a table has axes {self.axes} and points for {len(self.points)} of them")
        for axis, points in zip(self.axes, self.points, strict=True):
            if not points or points[0] <= 0 or any(a >= b for a, b in itertools.pairwise(points)):
                raise InputError(
                    f"table axis {axis} has points {points}: positive, ascending ones are needed"
                )
        if len(self.seconds) != math.prod(self.shape):
            raise InputError(f"a table of shape {self.shape} has {len(self.seconds)} entries")
        if not all(0 <= s < math.inf for s in self.seconds):
            raise InputError(f"a table over {self.axes} has an entry that is negative or not finite")

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points of each axis."""
        return tuple(len(points) for points in self.points)

    @cached_property
    def _monotone(self) -> Floats:
        """The entries, raised where noise made more work look faster: each is the largest of those below it."""
        values = np.asarray(self.seconds, dtype=np.float64).reshape(self.shape)
        for axis in range(len(self.axes)):
            values = np.maximum.accumulate(values, axis=axis)
        return values

    def at(self, *shape: npt.ArrayLike) -> Floats:
        """Seconds at these coordinates, one array an axis, broadcast together.

        Linear between points in every axis: an op costs a start and so much a unit of work, which this meets
        exactly; measured points are met exactly too. Beyond the last point in proportion to it; below the first,
        the first. It never falls with a coordinate or with an entry.
        """
        coordinates = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in shape))
        if len(coordinates) != len(self.axes):
            raise ValueError(f"a table over {self.axes} was asked with {len(coordinates)} coordinates")
        if not coordinates:
            return self._monotone
        lower, weights, beyond = [], [], np.ones(coordinates[0].shape)
        for points, x in zip(self.points, coordinates, strict=True):
            index, weight, excess = _bracket(np.asarray(points, dtype=np.float64), x)
            lower.append(index)
            weights.append(weight)
            beyond = beyond * excess
        return beyond * self._blend(lower, weights)

    def _blend(self, lower: list[npt.NDArray[np.int64]], weights: list[Floats]) -> Floats:
        """Multilinear interpolation between the corners of the cell that starts at `lower`."""
        total = np.zeros(weights[0].shape)
        for corner in itertools.product((0, 1), repeat=len(self.axes)):
            share = np.ones(weights[0].shape)
            index = []
            for side, low, weight, size in zip(corner, lower, weights, self.shape, strict=True):
                share = share * (weight if side else 1 - weight)
                index.append(np.minimum(low + side, size - 1))
            total += share * self._monotone[tuple(index)]
        return total

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {
            "axes": dict(zip(self.axes, map(list, self.points), strict=True)),
            "seconds": list(self.seconds),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Grid:
        """The table that `to_json` wrote. InputError says what is wrong with it."""
        try:
            axes: Mapping[str, Any] = data["axes"]
            points = tuple(tuple(float(p) for p in points) for points in axes.values())
            return Grid(tuple(axes), points, tuple(float(s) for s in data["seconds"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"a calibration table is broken: {error!r}") from error


def _bracket(points: Floats, x: Floats) -> tuple[npt.NDArray[np.int64], Floats, Floats]:
    """Index of the cell that holds x, x's place in it in [0, 1], and by what factor x lies beyond the last."""
    inside = np.clip(x, points[0], points[-1])
    index = np.clip(np.searchsorted(points, inside, side="right") - 1, 0, max(0, len(points) - 2))
    upper = np.minimum(index + 1, len(points) - 1)
    width = points[upper] - points[index]
    weight = np.divide(inside - points[index], width, out=np.zeros(x.shape), where=width > 0)
    return index, weight, np.maximum(1.0, x / points[-1])
