"""`Fabric`: the levels of links that a group of ranks crosses, for costs that know no device numbers."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.cluster.cluster import Cluster, Link


@dataclass(frozen=True)
class Hop:
    """One level that a group crosses: `fanout` members (of the level below) are joined by `link`."""

    link: Link
    fanout: int


@dataclass(frozen=True)
class Fabric:
    """Equal nodes in equal racks: (link, devices beneath one unit of it), from the fastest level to the slowest.

    For DGX nodes: ((NVLink, 8), (InfiniBand in the rack, 8 × nodes a rack), (between racks, all devices)).
    """

    levels: tuple[tuple[Link, int], ...]

    def __post_init__(self) -> None:
        sizes = [size for _, size in self.levels]
        if not sizes or sizes != sorted(sizes):
            raise ValueError(f"a fabric has levels of {sizes} devices: they are to grow")

    @property
    def devices_per_node(self) -> int:
        """Devices that the fastest link joins."""
        return self.levels[0][1]

    @property
    def devices(self) -> int:
        """All devices."""
        return self.levels[-1][1]

    def hops(self, size: int, stride: int = 1) -> tuple[Hop, ...]:
        """The levels that `size` ranks at distance `stride` cross, fastest first; () for a single rank.

        With 8 devices a node, 16 ranks at stride 4 have 2 members in each of 8 nodes: hops of fanout 2 and 8.
        """
        out, joined = [], 1
        for link, beneath in self.levels:
            within = min(size, max(1, beneath // stride))
            fanout = -(-within // joined)
            if fanout > 1:
                out.append(Hop(link, fanout))
                joined *= fanout
        if joined < size:  # more ranks than the fabric has devices: the slowest link joins them too
            out.append(Hop(self.levels[-1][0], -(-size // joined)))
        return tuple(out)

    def slowest(self, size: int, stride: int = 1) -> Link | None:
        """The slowest link that such a group crosses; None for a single rank."""
        hops = self.hops(size, stride)
        return hops[-1].link if hops else None


def fabric(cluster: Cluster) -> Fabric:
    """The fabric of a cluster's first rack and node; mixed clusters are described by the part that is asked for."""
    rack, node = cluster.racks[0], cluster.racks[0].nodes[0]
    levels = [(node.link, node.devices)]
    if len(rack.nodes) > 1:
        levels.append((rack.link, sum(n.devices for n in rack.nodes)))
    if len(cluster.racks) > 1:
        levels.append((cluster.link, len(cluster)))
    return Fabric(tuple(levels))
