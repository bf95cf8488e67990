"""Collectives over a group of devices that one link joins."""

from __future__ import annotations

from typing import Literal

from rpeg.cost.passes.timing import Timing
from rpeg.cost.tree import Cost

Collective = Literal["all_reduce", "all_gather", "reduce_scatter"]

# Rings (Thakur, Rabenseifner and Gropp 2005): steps, and how often the whole tensor passes each link, over p ranks.
_RINGS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def collective(
    name: str, kind: Collective, ranks: int, size_bytes: float, timing: Timing, count: int = 1
) -> Cost:
    """`count` collectives of a tensor of `size_bytes` as a whole, over `ranks`.

    Measured where there is a table, else rings on the timing's link: rounds·(p−1)·(α + bytes / p / β).
    """
    if ranks <= 1 or count == 0:
        return Cost(name, 0.0, bound="network", count=count)
    measured = timing.table(kind, ranks, size_bytes)
    moved = _RINGS[kind] * (ranks - 1) / ranks * size_bytes
    if measured is not None:
        seconds = float(measured) * count
        return Cost(name, seconds, 0.0, moved * count, "network", seconds, count)
    if timing.link is None:
        raise ValueError(f"{name}: {ranks} ranks and no link between them")
    latency = _RINGS[kind] * (ranks - 1) * timing.link.latency_seconds
    seconds = (latency + moved / timing.link.bandwidth_bytes_per_second) * count
    return Cost(name, seconds, 0.0, moved * count, "network", 0.0, count)
