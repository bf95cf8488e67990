"""What each level of links carries in a collective: bytes and steps, whatever the links can do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2
from typing import Literal

from rpeg.cluster import Fabric, Link

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"]

_ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "broadcast": 1}


@dataclass(frozen=True, slots=True)
class Leg:
    """One level of links in a collective.

    share: of the whole tensor that each rank sends over `link`.
    ring_steps, tree_steps: messages one after another on the way.
    inner: the link lies within a node. members: parts that meet over it.
    """

    link: Link
    share: float
    ring_steps: int
    tree_steps: int
    inner: bool
    members: int


@lru_cache(maxsize=4096)
def legs(kind: Collective, ranks: int, fabric: Fabric, stride: int = 1) -> tuple[Leg, ...]:
    """The levels that a collective crosses, fastest first; empty for a single rank.

    Hierarchical: what lies beyond a node is cut over the members within it, each on its own link. Rings pass
    (f - 1) / f of their data over each of f members' links, twice where they reduce and gather (Patarasuk and Yuan,
    2009, "Bandwidth optimal all-reduce algorithms"); trees take log2(f) steps; all-to-all sends each peer its share.
    """
    first = fabric.levels[0][0]
    if kind == "send":
        link = fabric.slowest(2, stride)
        return () if link is None or ranks < 2 else (Leg(link, 1.0, 1, 1, link == first, 2),)
    out, joined = [], 1
    for hop in fabric.hops(ranks, stride):
        share, ring, tree = _hop(kind, hop.fanout, joined, ranks)
        out.append(Leg(hop.link, share, ring, tree, hop.link == first, hop.fanout))
        joined *= hop.fanout
    return tuple(out)


def _hop(kind: Collective, fanout: int, joined: int, ranks: int) -> tuple[float, int, int]:
    """Share of the tensor that a rank sends, and steps of a ring and of a tree, where `fanout` parts of `joined` meet."""
    rounds = _ROUNDS[kind]
    ring, tree = rounds * (fanout - 1), rounds * ceil(log2(fanout))
    if kind == "all_to_all":
        return (min(joined * fanout, ranks) - joined) / ranks, ring, ring
    if kind == "broadcast":
        return 1.0 / joined, ring, tree
    return rounds * (fanout - 1) / fanout / joined, ring, tree if kind == "all_reduce" else ring
