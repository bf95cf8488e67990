"""Collectives over a group of devices that one link joins."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from rpeg.cost.passes.timing import Timing
from rpeg.cost.tree import Cost

Floats = npt.NDArray[np.float64]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter"]

# Rings (Thakur, Rabenseifner and Gropp 2005): steps, and how often the whole tensor passes each link, over p ranks.
_RINGS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def collective(
    name: str, kind: Collective, ranks: int, size_bytes: float, timing: Timing, count: int = 1
) -> Cost:
    """`count` collectives of a tensor of `size_bytes` as a whole, over `ranks`.

    Measured where there is a table, else rings on the timing's link: rounds·(p−1)·(α + bytes / p / β).
    """
    return collectives(name, kind, ranks, np.array([size_bytes]), timing, count)


def collectives(
    name: str, kind: Collective, ranks: int, size_bytes: Floats, timing: Timing, each: int = 1
) -> Cost:
    """`each` collectives of every one of these tensors, see `collective`. size_bytes: (n,)."""
    count = each * len(size_bytes)
    if ranks <= 1 or count == 0:
        return Cost(name, 0.0, bound="network", count=count)
    moved = float(_moved(kind, ranks, size_bytes).sum()) * each
    seconds = float(collective_seconds(name, kind, ranks, size_bytes, timing).sum()) * each
    measured = 0.0 if timing.table(kind, ranks, size_bytes) is None else seconds
    return Cost(name, seconds, 0.0, moved, "network", measured, count)


def collective_seconds(name: str, kind: Collective, ranks: int, size_bytes: Floats, timing: Timing) -> Floats:
    """(n,) seconds of one collective of each tensor."""
    if ranks <= 1:
        return np.zeros(len(size_bytes))
    measured = timing.table(kind, ranks, size_bytes)
    if measured is not None:
        return measured
    if timing.link is None:
        raise ValueError(f"{name}: {ranks} ranks and no link between them")
    latency = _RINGS[kind] * (ranks - 1) * timing.link.latency_seconds
    moved = _moved(kind, ranks, size_bytes) / timing.link.bandwidth_bytes_per_second
    return np.asarray(latency + moved)


def _moved(kind: Collective, ranks: int, size_bytes: Floats) -> Floats:
    return np.asarray(_RINGS[kind] * (ranks - 1) / ranks * size_bytes)
