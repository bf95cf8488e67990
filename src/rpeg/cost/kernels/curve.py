"""`Curve`: seconds of one kernel along one size, the others fixed. Asked often, so that a number takes a microsecond."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.cost.kernels.timed import largest
from rpeg.cost.kernels.work import Amount

Floats = npt.NDArray[np.float64]
Places = tuple[npt.NDArray[np.int64], Floats, bool]


@dataclass(frozen=True, eq=False)
class Curve:
    """Linear in logarithms between points; below the first its value, beyond the last (or without any) `beyond`.

    start, step: of the points' natural logarithms. logs: of seconds, rising. beyond: seconds there.
    """

    start: float
    step: float
    logs: tuple[float, ...]
    beyond: Callable[[Amount], Amount]
    measured: bool
    floor_seconds: float = 0.0

    def number(self, x: float) -> float:
        """Seconds at x."""
        if not self.logs:
            return float(largest(float(self.beyond(x)), self.floor_seconds))
        place = (math.log(x) - self.start) / self.step if x > 0 else 0.0
        if place <= 0.0:
            return math.exp(self.logs[0])
        low = int(place)
        if low >= len(self.logs) - 1:
            return max(math.exp(self.logs[-1]), float(self.beyond(x)))
        first = self.logs[low]
        return math.exp(first + (place - low) * (self.logs[low + 1] - first))

    def numbers(self, x: Floats) -> Floats:
        """Seconds at an array of x."""
        if not self.logs:
            slow: Floats = np.maximum(np.asarray(self.beyond(x)), self.floor_seconds)
            return slow
        low, share, within = _places(x, self.start, self.step, len(self.logs) - 1)
        logs, rises = self._arrays
        seconds: Floats = np.exp(logs[low] + share * rises[low])
        if within:
            return seconds
        beyond = np.asarray(self.beyond(x))
        return np.where(low + 1 >= len(self.logs), np.maximum(seconds, beyond), seconds)

    @cached_property
    def _arrays(self) -> tuple[Floats, Floats]:
        """The logarithms, and by how much the next one is larger."""
        logs = np.asarray(self.logs)
        return logs, np.append(np.diff(logs), 0.0)


_asked: tuple[Any, tuple[float, float, int], Places] | None = None
"""The array that was asked last, on which points, and its places: a pass asks many curves at the same sizes."""


def _places(x: Floats, start: float, step: float, last: int) -> Places:
    """(point at or below, share of the way to the next, whether all are within the points), kept for the next curve."""
    global _asked
    grid, kept = (start, step, last), _asked
    if kept is not None and kept[0] is x and kept[1] == grid:
        return kept[2]
    place = (np.log(np.maximum(x, 1e-300)) - start) / step
    place = np.minimum(np.maximum(place, 0.0), float(last))
    low = place.astype(np.int64)
    places = low, place - low, bool(place.max(initial=0.0) < last)
    _asked = x, grid, places
    return places


def roofline_curve(ideal: Callable[[Amount], Amount], efficiency: float, floor_seconds: float) -> Curve:
    """Where nothing was measured: the roofline at one efficiency."""
    return Curve(0.0, 1.0, (), lambda x: ideal(x) / efficiency, False, floor_seconds)
