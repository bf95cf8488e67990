"""`Fabric`: the levels of links that a group of ranks crosses, for costs that know no device numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rpeg.cluster.cluster import Cluster, Link
from rpeg.errors import InputError
from rpeg.hashing import kept_hash


@dataclass(frozen=True)
class Hop:
    """One level that a group crosses: `fanout` members (of the level below) are joined by `link`."""

    link: Link
    fanout: int


@kept_hash
@dataclass(frozen=True)
class Fabric:
    """Equal nodes in equal racks: (link, devices beneath one unit of it), from the fastest level to the slowest.

    For DGX nodes: ((NVLink, 8), (InfiniBand in the rack, 8 × nodes a rack), (between racks, all devices)); for NVL72:
    ((NVLink, 72), (InfiniBand, all devices)), where a host has four of the devices.
    devices_a_host: that share a node's host memory and processors; 0 where the fastest link joins just these.
    """

    levels: tuple[tuple[Link, int], ...]
    devices_a_host: int = 0

    def __post_init__(self) -> None:
        sizes = [size for _, size in self.levels]
        if not sizes or sizes != sorted(sizes) or sizes[0] < 1:
            raise InputError(f"a fabric has levels of {sizes} devices: they are to grow, from at least 1")

    @property
    def devices_per_node(self) -> int:
        """Devices that the fastest link joins: a node's, or all 72 of an NVL72."""
        return self.levels[0][1]

    @property
    def devices_per_host(self) -> int:
        """Devices that share host memory and processors: a node's, or the four of an NVL72's tray."""
        return self.devices_a_host or self.levels[0][1]

    @property
    def devices(self) -> int:
        """All devices."""
        return self.levels[-1][1]

    def hops(self, size: int, stride: int = 1) -> tuple[Hop, ...]:
        """The levels that `size` ranks at distance `stride` cross, fastest first; () for a single rank.

        With 8 devices a node, 16 ranks at stride 4 have 2 members in each of 8 nodes: hops of fanout 2 and 8.
        The product of the fanouts is `size`, or more where the ranks do not fill their nodes evenly.
        """
        return _hops(self, size, stride)

    def slowest(self, size: int, stride: int = 1) -> Link | None:
        """The slowest link that such a group crosses; None for a single rank."""
        hops = self.hops(size, stride)
        return hops[-1].link if hops else None


@lru_cache(maxsize=4096)
def _hops(fabric: Fabric, size: int, stride: int) -> tuple[Hop, ...]:
    if size < 1 or stride < 1:
        raise InputError(f"a group has {size} ranks at distance {stride}, at least 1 of each is needed")
    out, joined = [], 1
    for link, beneath in fabric.levels:
        within = min(size, max(1, beneath // stride))
        fanout = -(-within // joined)
        if fanout > 1:
            out.append(Hop(link, fanout))
            joined *= fanout
    if joined < size:  # more ranks than the fabric has devices: the slowest link joins them too
        out.append(Hop(fabric.levels[-1][0], -(-size // joined)))
    return tuple(out)


def fabric(cluster: Cluster) -> Fabric:
    """The fabric of a cluster's first rack and node; mixed clusters are described by the part that is asked for.

    Levels whose links are equally fast are one level: trays of an NVL72 are joined as their devices are.
    """
    rack, node = cluster.racks[0], cluster.racks[0].nodes[0]
    levels = [(node.link, node.devices)]
    if len(rack.nodes) > 1:
        _join(levels, rack.link, sum(n.devices for n in rack.nodes))
    if len(cluster.racks) > 1:
        _join(levels, cluster.link, len(cluster))
    return Fabric(tuple(levels), node.devices)


def _join(levels: list[tuple[Link, int]], link: Link, devices: int) -> None:
    last = levels[-1][0]
    speed = (link.bandwidth_bytes_per_second, link.latency_seconds)
    if speed == (last.bandwidth_bytes_per_second, last.latency_seconds):
        levels[-1] = (last, devices)
    else:
        levels.append((link, devices))
