"""`Asked`: one table made ready for one kind of device, and what it says of any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
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
    """A table's seconds on a kind, of shapes in the table's dtype and head dimension.

    A shape that even the surface does not reach takes as many times the seconds of the nearest that it does as it has
    times the FLOP or the bytes, whichever is more: what binds must not matter, or a faster memory could make an
    extrapolated time longer.
    """

    kind: DeviceKind
    table: Table
    measured: bool
    surface: Surface

    def timed(self, work: Work, *where: Amount, like: Work | None = None) -> Timed:
        """A kernel of this work at these coordinates, numbers or arrays.

        like: the work of the shape that stands for this one in the table, where that is another.
        """
        inside = [_within(x, ends) for x, ends in zip(where, self.surface.ends, strict=True)]
        times = more(work if like is None else like, REFERENCES[self.table.op](self.table, *inside))
        seconds = self.surface.at(*inside) * times
        if isinstance(work[1], float | int):
            seconds = float(seconds)
        return Timed(largest(seconds, self.surface.least_seconds), *work, self.measured)

    def along(self, free: str, fixed: Mapping[str, float], work: Callable[[Amount], Work]) -> Curve:
        """Seconds along one axis with the others fixed; work: of a shape on it."""
        axis = self.table.axes.index(free)
        start, step = self.surface.starts[axis], self.surface.steps[axis]
        points = np.exp(start + step * np.arange(self.surface.logs.shape[axis]))
        where: list[Any] = [
            points if name == free else _within(fixed[name], ends)
            for name, ends in zip(self.table.axes, self.surface.ends, strict=True)
        ]
        times = more(work(points), REFERENCES[self.table.op](self.table, *where))
        seconds = np.maximum(self.surface.at(*where) * times, self.surface.least_seconds)
        logs = np.maximum.accumulate(np.log(seconds))
        last = float(np.exp(logs[-1]))
        end = work(float(points[-1]))

        def beyond(x: Amount) -> Amount:
            return last * more(work(x), end)

        return Curve(start, step, tuple(logs.tolist()), beyond, self.measured)


def asked(
    kind: DeviceKind,
    table: Table,
    compute: str,
    floor_seconds: float,
    measured: bool,
    dtype: str = "",
    head_dim: float = 0,
) -> Asked:
    """Makes a table ready. dtype, head_dim: of the kernels asked, where the table is the nearest to theirs.

    Its efficiencies then count against their work on the grid, before the surface is made to rise.
    """
    table = replace(table, dtype=dtype or table.dtype, head_dim=int(head_dim) or table.head_dim)

    def ideal(*where: Any) -> Any:
        return ideal_seconds(kind, REFERENCES[table.op](table, *where), compute)

    made = surface(table, ideal, floor_seconds)
    return Asked(kind, table, measured, made)


def more(work: Work, than: Work) -> Amount:
    """How many times the FLOP or the bytes, whichever is more."""
    moved = work[1] / than[1]
    if isinstance(than[0], float | int) and not than[0]:
        return moved
    return largest(work[0] / than[0], moved)


def _within(x: Amount, ends: tuple[float, float]) -> Amount:
    if isinstance(x, float | int):
        return float(min(max(x, ends[0]), ends[1]))
    return np.minimum(np.maximum(x, ends[0]), ends[1])
