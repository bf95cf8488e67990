"""Hierarchical collectives over the levels of a fabric."""

from __future__ import annotations

from typing import Literal

from rpeg.cost.machine import Machine

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]

_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "broadcast": 1, "send": 1}


def collective_seconds(
    kind: Collective, size_bytes: float, ranks: int, machine: Machine, *, stride: int = 1, sharing: int = 1
) -> float:
    """Seconds of one collective over `ranks` devices at distance `stride`.

    size_bytes: of the whole tensor (all_gather: of the result; reduce_scatter: of the input; all_to_all: what one
    rank sends in all; send: one message between two ranks at distance `stride`).
    sharing: like groups that use the same links at once, beyond what `bandwidth` of one device already grants.
    """
    if kind == "send":
        link = machine.fabric.slowest(2, stride)
        if link is None:
            return 0.0
        return link.latency_seconds + size_bytes * sharing / link.bandwidth_bytes_per_second
    seconds, left = 0.0, size_bytes
    for hop in machine.fabric.hops(ranks, stride):
        share = (hop.fanout - 1) / hop.fanout
        seconds += _ROUNDS[kind] * (
            (hop.fanout - 1) * hop.link.latency_seconds
            + share * left * sharing / hop.link.bandwidth_bytes_per_second
        )
        if kind != "all_to_all":
            left /= hop.fanout
    return seconds
