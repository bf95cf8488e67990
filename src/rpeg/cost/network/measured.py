"""Measured collectives within a node: seconds over size and ranks, where the device kind has a table.

A table holds what NCCL takes, and what the own all-reduce of serving engines takes for small messages
(`data/network/<kind>.json`, distilled by scripts/distil_collectives.py). A kind without one asks that of the kind in its
`like`; a link of another bandwidth than the measured NVLink scales what is left above the smallest message's time.
Tables of kinds without NVLink are not asked: what their collectives reach is their host's doing, not theirs.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache, reduce
from importlib import resources
from typing import Any

import numpy as np

from rpeg.cluster import DeviceKind, device_kind
from rpeg.cost.kernels.timed import smallest
from rpeg.cost.kernels.work import Amount
from rpeg.cost.network.routes import Collective

_DATA = resources.files("rpeg.cost") / "data" / "network"
_NCCL = "nccl"
# Engines whose own all-reduce opens its peers' memory by handles that hold within one node: beyond the devices of a node,
# which are as many as were measured, they call NCCL even over NVLink (vllm-project/vllm, csrc/custom_all_reduce.cuh and
# issue 52778).
_WITHIN_NODE = ("vllm",)


@dataclass(frozen=True)
class Curve:
    """One collective over one number of ranks: logarithms of bytes, ascending, and of seconds, not falling."""

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def least(self) -> float:
        """Seconds of the smallest message."""
        return math.exp(self.seconds[0])

    def at(self, size_bytes: Amount) -> Amount:
        """Interpolated in logarithms; beyond the largest message in proportion to the bytes. A number or an array."""
        if not isinstance(size_bytes, float | int):
            sizes = np.log(np.maximum(size_bytes, 1e-300))
            within = np.interp(sizes, self.sizes, self.seconds)
            return np.exp(within + np.maximum(sizes - self.sizes[-1], 0.0))
        x = math.log(size_bytes)
        right = bisect_right(self.sizes, x)
        if right == 0:
            return self.least
        if right == len(self.sizes):
            return math.exp(self.seconds[-1] + x - self.sizes[-1])
        a, b = self.sizes[right - 1], self.sizes[right]
        share = (x - a) / (b - a)
        return math.exp(self.seconds[right - 1] * (1 - share) + self.seconds[right] * share)


@dataclass(frozen=True)
class Table:
    """Of one device kind. bandwidth: of the link that was measured, bytes a second. curves: by library, op and ranks."""

    bandwidth: float
    curves: dict[tuple[str, str], dict[int, Curve]]


def measured(
    kind: Collective, size_bytes: Amount, ranks: int, device: DeviceKind, bandwidth: float, library: str = ""
) -> Amount | None:
    """Seconds over a link of `bandwidth` within a node; None where nothing was measured.

    library: a serving engine, whose own all-reduce is taken where it is faster than NCCL's.
    """
    table = _table(device.name) or (_table(device.like) if device.like else None)
    if table is None:
        return None
    names = (_NCCL, library) if library and kind == "all_reduce" else (_NCCL,)
    times = [
        _between(kind, curves, size_bytes, ranks, table.bandwidth / bandwidth)
        for name in names
        if (curves := table.curves.get((name, kind))) and not (name in _WITHIN_NODE and ranks > max(curves))
    ]
    return reduce(smallest, times) if times else None


def collectives_of(device: DeviceKind) -> tuple[str, dict[tuple[str, str], int]]:
    """The kind whose measurements are asked for a device's, and the most ranks measured by library and collective."""
    for name in filter(None, (device.name, device.like)):
        table = _table(name)
        if table is not None:
            return name, {key: max(curves) for key, curves in sorted(table.curves.items())}
    return "", {}


def _between(kind: str, curves: dict[int, Curve], size: Amount, ranks: int, slower: float) -> Amount:
    """Between measured numbers of ranks by their logarithm; beyond them by how rings and trees grow."""
    known = sorted(curves)
    if ranks in curves:
        return _scaled(curves[ranks], size, slower)
    if ranks < known[-1]:
        high = next(n for n in known if n > ranks)
        low = max((n for n in known if n < ranks), default=high)
        share = math.log(ranks / low) / math.log(high / low)
        return (1 - share) * _scaled(curves[low], size, slower) + share * _scaled(curves[high], size, slower)
    most, half = known[-1], known[-2]
    least = curves[most].least
    growth = (least - curves[half].least) / (math.log2(most / half) if kind == "all_reduce" else most - half)
    steps = math.log2(ranks / most) if kind == "all_reduce" else ranks - most
    moved = (ranks - 1) / ranks * most / (most - 1)
    return least + max(growth, 0.0) * steps + (_scaled(curves[most], size, slower) - least) * moved


def _scaled(curve: Curve, size: Amount, slower: float) -> Amount:
    return curve.least + (curve.at(size) - curve.least) * slower


@cache
def _table(name: str) -> Table | None:
    file = _DATA / f"{name}.json"
    if not file.is_file():
        return None
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    bandwidth = device_kind(name).nvlink_bandwidth_bytes_per_second
    if not bandwidth:
        return None
    curves: dict[tuple[str, str], dict[int, Curve]] = {}
    for entry in data["curves"]:
        by_ranks = curves.setdefault((entry["library"], entry["collective"]), {})
        by_ranks[int(entry["ranks"])] = _curve(entry["bytes"], entry["seconds"])
    return Table(bandwidth, curves)


def _curve(sizes: list[float], seconds: list[float]) -> Curve:
    """Noise that would let more bytes take less time is cut off: no point lies above a later one."""
    least, rising = math.inf, []
    for value in reversed(seconds):
        least = min(least, value)
        rising.append(math.log(least))
    return Curve(tuple(math.log(size) for size in sizes), tuple(reversed(rising)))
