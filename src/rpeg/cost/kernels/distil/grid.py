"""Scattered measurements as a rising grid. Nothing is fitted but the grid itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# A point counts as on a node when its product of nearnesses (1 there, 0 a node further) exceeds this.
_ON_NODE = 0.8


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


def isotonic(values: Floats, rounds: int = 30) -> Floats:
    """The rising grid nearest to these values: pooled neighbours along each axis in turn (Dykstra's projections).

    Timings are noisy, and a kernel is at times slower on less work; one slow shape moves only its neighbours.
    """
    fitted, steps = values.copy(), [np.zeros(values.shape) for _ in range(values.ndim)]
    for _ in range(rounds):
        for axis, step in enumerate(steps):
            wanted = fitted + step
            fitted = np.apply_along_axis(_pooled, axis, wanted)
            step[...] = wanted - fitted
    return fitted


def _pooled(values: Floats) -> Floats:
    """Adjacent violators pooled to their means."""
    means: list[float] = []
    counts: list[int] = []
    for value in values:
        means.append(float(value))
        counts.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            mean, count = means.pop(), counts.pop()
            means[-1] = (means[-1] * counts[-1] + mean * count) / (counts[-1] + count)
            counts[-1] += count
    return np.repeat(means, counts)


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
