"""Seconds of collectives: hierarchical, the slowest level binds.

Within a node they are measured where the device kind has a table (`measured`), else a start-up time and a time per
byte; beyond it always the latter. Levels work at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rpeg.cost.kernels.timed import largest
from rpeg.cost.kernels.work import Amount
from rpeg.cost.machine import Machine
from rpeg.cost.network.measured import measured
from rpeg.cost.network.routes import Collective, Leg, legs
from rpeg.cost.tree import Cost

# What NCCL's protocols LL (a flag beside each 4 bytes), LL128 (8 bytes of flags in each 128) and Simple take, as shares
# of a link's latency, which is LL128's in a ring: NVLink 0.6, 1.9, 3.4 µs a step in a ring, 0.6, 1.25, 4 in a tree; the
# network 2.7, 4, 14 and 5, 8.5, 14. Start-up takes 6.6, 14 and 8.4 µs, of which the first is `base_seconds`. Bandwidth
# is 0.5 of Simple's (LL; between nodes 45 of the 400 GB/s of a node), 0.92 and 1, of a tree 0.92 of a ring's.
# (NVIDIA/nccl v2.28, src/graph/tuning.cc: baseLatencies, hwLatencies, llMaxBws, ncclTopoTuneModel.)
_BASE = (1.0, 2.1, 1.27)
_RING = {True: (0.32, 1.0, 1.8), False: (0.68, 1.0, 3.5)}
_TREE = {True: (0.32, 0.66, 2.1), False: (1.25, 2.1, 3.5)}
_BANDWIDTH = {True: (0.5, 0.92, 1.0), False: (0.11, 0.92, 1.0)}
_TREE_BANDWIDTH = 0.92
_PROTOCOLS = (0, 1, 2)


def collective_seconds(
    kind: Collective, size_bytes: Amount, ranks: int, machine: Machine, *, stride: int = 1, sharing: float = 1
) -> Amount:
    """Seconds of one collective over `ranks` devices at distance `stride`.

    size_bytes: of the whole tensor (all_gather: of the result; reduce_scatter: of the input; all_to_all: what one
    rank sends in all, its own share included; send: one message between two ranks at distance `stride`).
    sharing: like groups that use the same links at once, beyond what `bandwidth` of one device already grants.
    Sizes may be an array, of collectives alike.
    """
    if _nothing(size_bytes, ranks):
        return 0.0
    return _seconds(kind, _route(kind, ranks, machine, stride), size_bytes, ranks, machine, sharing)


def collective(
    name: str,
    kind: Collective,
    size_bytes: float,
    ranks: int,
    machine: Machine,
    *,
    stride: int = 1,
    sharing: float = 1,
) -> Cost:
    """The same as a cost: a leaf for each level of links with the bytes that each rank sends over it."""
    if ranks < 2 or size_bytes <= 0:
        return Cost(name, 0.0, bound="network")
    route = _route(kind, ranks, machine, stride)
    seconds = _seconds(kind, route, size_bytes, ranks, machine, sharing)
    leaves = tuple(_leaf(leg, size_bytes, machine, sharing, seconds) for leg in route.legs)
    return Cost(name, seconds, 0.0, sum(leaf.bytes for leaf in leaves), "network", children=leaves)


def _leaf(leg: Leg, size_bytes: float, machine: Machine, sharing: float, whole: float) -> Cost:
    """A level's bytes, and how long its link is busy with them."""
    sent = leg.share * size_bytes
    return Cost(leg.link.level, min(whole, sent * sharing / _rate(leg, machine)), 0.0, sent, "network")


def moved_bytes(
    kind: Collective, size_bytes: float, ranks: int, machine: Machine, *, stride: int = 1
) -> tuple[tuple[str, float], ...]:
    """(level, bytes that each rank sends over its links) pairs, fastest level first."""
    route = legs(kind, ranks, machine.fabric, stride)
    return tuple((leg.link.level, leg.share * size_bytes) for leg in route)


def exchange_seconds(
    size_bytes: Amount,
    ranks: int,
    machine: Machine,
    *,
    stride: int = 1,
    imbalance: float = 1.0,
    nodes_per_token: float | None = None,
    copies: float = 1,
    sharing: float = 1,
) -> Amount:
    """Seconds of the all-to-all that takes tokens to their experts, or back.

    size_bytes: of all copies of one rank's tokens together. copies: experts a token goes to.
    imbalance: tokens of the most loaded rank over the mean; the exchange ends when that rank has them all.
    nodes_per_token: node-limited routing (DeepSeek-V3, arXiv:2412.19437, section 2.1.2): a token crosses the network
    once for each of at most so many nodes and is handed on within them; None: once for each copy.
    """
    if _nothing(size_bytes, ranks):
        return 0.0
    limited = nodes_per_token is not None and copies > nodes_per_token
    once = nodes_per_token / copies if nodes_per_token is not None and limited else 1.0
    route = _route("all_to_all", ranks, machine, stride, once)
    return _seconds("all_to_all", route, size_bytes * max(imbalance, 1.0), ranks, machine, sharing)


def _rate(leg: Leg, machine: Machine) -> float:
    traits = machine.stack.network
    share = traits.efficiency if leg.inner else traits.fabric_efficiency
    return leg.link.bandwidth_bytes_per_second * share


def _nothing(size_bytes: Amount, ranks: int) -> bool:
    """Whether there is nobody to send to, or nothing to send."""
    return ranks < 2 or (isinstance(size_bytes, float | int) and size_bytes <= 0)


class _Route(NamedTuple):
    """What a collective crosses. lines: (seconds to start, seconds a byte) of each protocol and algorithm."""

    legs: tuple[Leg, ...]
    lines: tuple[tuple[float, float], ...]


@lru_cache(maxsize=4096)
def _route(kind: Collective, ranks: int, machine: Machine, stride: int = 1, crossing: float = 1.0) -> _Route:
    """crossing: share of what each rank sends beyond its node that is sent there at all."""
    route = legs(kind, ranks, machine.fabric, stride)
    if crossing != 1.0:
        route = tuple(leg if leg.inner else replace(leg, share=leg.share * crossing) for leg in route)
    return _Route(route, tuple(_lines(route, machine)))


def _lines(route: tuple[Leg, ...], machine: Machine) -> Iterator[tuple[float, float]]:
    """NCCL's protocols and algorithms: latencies of levels add up, bytes on them move at the same time."""
    outer = not all(leg.inner for leg in route)
    for protocol in _PROTOCOLS:
        begun = machine.stack.network.base_seconds * _BASE[protocol]
        ring = tree = passed = 0.0
        for leg in route:
            latency = leg.link.latency_seconds
            ring += leg.ring_steps * latency * _RING[leg.inner][protocol]
            steps = leg.ring_steps if leg.inner else leg.tree_steps
            tree += steps * latency * _TREE[leg.inner][protocol]
            passed = max(passed, leg.share / _rate(leg, machine) / _BANDWIDTH[leg.inner][protocol])
        yield begun + ring, passed
        if outer:
            yield begun + tree, passed / _TREE_BANDWIDTH


def _seconds(
    kind: Collective, route: _Route, size_bytes: Amount, ranks: int, machine: Machine, sharing: float
) -> Amount:
    """Of all collectives alike; none where nothing is sent."""
    seconds = _moving(kind, route, size_bytes, ranks, machine, sharing)
    return seconds if isinstance(size_bytes, float | int) else np.where(size_bytes > 0, seconds, 0.0)


def _moving(
    kind: Collective, route: _Route, size_bytes: Amount, ranks: int, machine: Machine, sharing: float
) -> Amount:
    """As measured within a node, as modelled beyond it, where the whole takes no less than its part within a node."""
    first = route.legs[0]
    if not first.inner:
        return _modelled(route, size_bytes * sharing)
    share = first.members / ranks if kind == "all_to_all" else 1.0
    bandwidth = first.link.bandwidth_bytes_per_second / sharing
    library = machine.stack.name if len(route.legs) == 1 else ""
    inside = measured(kind, size_bytes * share, first.members, machine.kind, bandwidth, library)
    if len(route.legs) > 1:
        return largest(_modelled(route, size_bytes * sharing), 0.0 if inside is None else inside)
    return _modelled(route, size_bytes * sharing) if inside is None else inside


def _modelled(route: _Route, size_bytes: Amount) -> Amount:
    """The best of protocols and algorithms."""
    if isinstance(size_bytes, float | int):
        return min([start + each * size_bytes for start, each in route.lines])
    starts, slopes = np.array(route.lines).T
    return np.min(starts[:, None] + slopes[:, None] * size_bytes, axis=0)
