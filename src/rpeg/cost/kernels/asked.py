"""`Asked`: one table made ready for one kind of device, and what it says of any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.curve import Curve
from rpeg.cost.kernels.ideal import ideal_seconds
from rpeg.cost.kernels.reference import REFERENCES
from rpeg.cost.kernels.table import Surface, Table, surface
from rpeg.cost.kernels.timed import Timed, largest
from rpeg.cost.kernels.work import Amount, Work


@dataclass(frozen=True, eq=False)
class Asked:
    """A table's seconds on a kind.

    A shape beyond the grid, or one of another head
    dimension than was measured, takes the efficiency of the nearest, but at least the time of the fastest kernel.
    """

    kind: DeviceKind
    table: Table
    compute: str
    measured: bool
    surface: Surface

    def timed(self, work: Work, *where: Amount) -> Timed:
        """A kernel of this work at these coordinates, numbers or arrays."""
        inside = [_within(x, points) for x, points in zip(where, self.table.points, strict=True)]
        at_inside = ideal_seconds(self.kind, REFERENCES[self.table.op](self.table, *inside), self.compute)
        seconds = self.surface.at(*inside) * (ideal_seconds(self.kind, work, self.compute) / at_inside)
        if isinstance(work[1], float | int):
            seconds = float(seconds)
        return Timed(largest(seconds, self.surface.least_seconds), *work, self.measured)

    def along(self, free: str, fixed: Mapping[str, float], ideal: Callable[[Amount], Amount]) -> Curve:
        """Seconds along one axis with the others fixed; ideal: of a shape on it, at the peaks."""
        axis = self.table.axes.index(free)
        start, step = self.surface.starts[axis], self.surface.steps[axis]
        points = np.exp(start + step * np.arange(self.surface.logs.shape[axis]))
        where: list[Any] = [
            points if name == free else _within(fixed[name], grid)
            for name, grid in zip(self.table.axes, self.table.points, strict=True)
        ]
        at_inside = ideal_seconds(self.kind, REFERENCES[self.table.op](self.table, *where), self.compute)
        seconds = np.maximum(self.surface.at(*where) * ideal(points) / at_inside, self.surface.least_seconds)
        logs = np.maximum.accumulate(np.log(seconds))
        scale = float(np.exp(logs[-1]) / ideal(float(points[-1])))
        return Curve(start, step, tuple(logs.tolist()), ideal, scale, self.measured)


def asked(kind: DeviceKind, table: Table, compute: str, floor_seconds: float, measured: bool) -> Asked:
    """Makes a table ready."""

    def ideal(*where: Any) -> Any:
        return ideal_seconds(kind, REFERENCES[table.op](table, *where), compute)

    made = surface(table, ideal, floor_seconds)
    return Asked(kind, table, compute, measured, made)


def _within(x: Amount, points: tuple[float, ...]) -> Amount:
    if isinstance(x, float | int):
        return float(min(max(x, points[0]), points[-1]))
    return np.minimum(np.maximum(x, points[0]), points[-1])
