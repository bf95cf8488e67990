"""Seconds of collectives: hierarchical, a start-up time and a time per byte a level, the slowest level binds."""

from __future__ import annotations

from dataclasses import replace

from rpeg.cost.machine import Machine
from rpeg.cost.network.routes import Collective, Leg, legs
from rpeg.cost.tree import Cost

# NCCL's protocols, as shares of the Simple protocol's time a step and of its bandwidth: LL (a flag beside each 4 bytes),
# LL128 (8 bytes of flags in each 128) and Simple. Steps over NVLink take 0.6, 1.9 and 3.4 µs, over the network 2.7, 4
# and 14 µs (ring); a ring's bandwidth is 0.5, 0.92 and 1 (NVIDIA/nccl v2.28, src/graph/tuning.cc: hwLatencies,
# ncclTopoTuneModel).
_PROTOCOLS = ((0.18, 0.5), (0.42, 0.92), (1.0, 1.0))

# Trees reach 0.92 of a ring's bandwidth (same place), and need steps that grow with the logarithm.
_TREE_BANDWIDTH = 0.92


def collective_seconds(
    kind: Collective, size_bytes: float, ranks: int, machine: Machine, *, stride: int = 1, sharing: float = 1
) -> float:
    """Seconds of one collective over `ranks` devices at distance `stride`.

    size_bytes: of the whole tensor (all_gather: of the result; reduce_scatter: of the input; all_to_all: what one
    rank sends in all, its own share included; send: one message between two ranks at distance `stride`).
    sharing: like groups that use the same links at once, beyond what `bandwidth` of one device already grants.
    """
    if ranks < 2 or size_bytes <= 0:
        return 0.0
    return _seconds(legs(kind, ranks, machine.fabric, stride), size_bytes, machine, sharing)


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
    route = legs(kind, ranks, machine.fabric, stride)
    leaves = tuple(_leaf(leg, size_bytes, machine, sharing) for leg in route)
    seconds = _seconds(route, size_bytes, machine, sharing)
    return Cost(name, seconds, 0.0, sum(leaf.bytes for leaf in leaves), "network", children=leaves)


def _leaf(leg: Leg, size_bytes: float, machine: Machine, sharing: float) -> Cost:
    sent = leg.share * size_bytes
    return Cost(leg.link.level, sent * sharing / _rate(leg, machine), 0.0, sent, "network")


def moved_bytes(
    kind: Collective, size_bytes: float, ranks: int, machine: Machine, *, stride: int = 1
) -> tuple[tuple[str, float], ...]:
    """(level, bytes that each rank sends over its links) pairs, fastest level first."""
    route = legs(kind, ranks, machine.fabric, stride)
    return tuple((leg.link.level, leg.share * size_bytes) for leg in route)


def exchange_seconds(
    size_bytes: float,
    ranks: int,
    machine: Machine,
    *,
    stride: int = 1,
    imbalance: float = 1.0,
    nodes_per_token: float | None = None,
    copies: float = 1,
    sharing: float = 1,
) -> float:
    """Seconds of the all-to-all that takes tokens to their experts, or back.

    size_bytes: of all copies of one rank's tokens together. copies: experts a token goes to.
    imbalance: tokens of the most loaded rank over the mean; the exchange ends when that rank has them all.
    nodes_per_token: node-limited routing (DeepSeek-V3, arXiv:2412.19437, section 2.1.2): a token crosses the network
    once for each of at most so many nodes and is handed on within them; None: once for each copy.
    """
    if ranks < 2 or size_bytes <= 0:
        return 0.0
    route = legs("all_to_all", ranks, machine.fabric, stride)
    if nodes_per_token is not None and copies > nodes_per_token:
        once = nodes_per_token / copies
        route = tuple(leg if leg.inner else replace(leg, share=leg.share * once) for leg in route)
    return _seconds(route, size_bytes * max(imbalance, 1.0), machine, sharing)


def _rate(leg: Leg, machine: Machine) -> float:
    traits = machine.stack.network
    share = traits.efficiency if leg.inner else traits.fabric_efficiency
    return leg.link.bandwidth_bytes_per_second * share


def _seconds(route: tuple[Leg, ...], size_bytes: float, machine: Machine, sharing: float) -> float:
    """The best of NCCL's protocols and algorithms; levels work at the same time, the slowest gives the bandwidth."""
    ring = tree = moving = 0.0
    for leg in route:
        latency = leg.link.latency_seconds
        ring += leg.ring_steps * latency
        tree += (leg.ring_steps if leg.inner else leg.tree_steps) * latency
        moving = max(moving, leg.share / _rate(leg, machine))
    moving *= size_bytes * sharing
    best = min(ring * step + moving / rate for step, rate in _PROTOCOLS)
    if tree < ring:
        best = min(best, *(tree * step + moving / (rate * _TREE_BANDWIDTH) for step, rate in _PROTOCOLS))
    return machine.stack.network.base_seconds + best
