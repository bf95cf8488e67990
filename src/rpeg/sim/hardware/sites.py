"""Where a block lies: its kind of device, the links that join those, and the machine that a stage finds there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rpeg.cluster import Cluster, DeviceKind, Fabric, fabric
from rpeg.cost import Machine, stack
from rpeg.plan import Devices


@dataclass(frozen=True)
class Site:
    """A block's kind and fabric. first: its first device, counted among those of its kind."""

    kind: DeviceKind
    fabric: Fabric
    first: int
    host_memory_bytes: int

    def machine(self, software: str) -> Machine:
        """The devices under a software stack."""
        return _machine(self.kind, self.fabric, software, self.host_memory_bytes)


def site(cluster: Cluster, block: Devices) -> Site:
    """Of a block, whose devices are all of one kind, in ascending order."""
    return _site(cluster, block.ids[0])


@lru_cache(maxsize=4096)
def _site(cluster: Cluster, first: int) -> Site:
    kind = cluster.device(first).kind
    links, start, memory = _of_kind(cluster, kind.name)
    return Site(kind, links, first - start, memory)


@lru_cache(maxsize=64)
def _of_kind(cluster: Cluster, kind: str) -> tuple[Fabric, int, int]:
    """The fabric of a cluster's devices of one kind, the first of them, and the host memory of a node."""
    racks = tuple(rack for rack in cluster.racks if any(node.kind.name == kind for node in rack.nodes))
    nodes = [i for i, node in enumerate(cluster.nodes) if node.kind.name == kind]
    start = cluster.devices_of(nodes[0]).start
    own = Cluster(cluster.name, racks, cluster.link)
    return fabric(own), start, cluster.nodes[nodes[0]].host_memory_bytes


@lru_cache(maxsize=256)
def _machine(kind: DeviceKind, links: Fabric, software: str, host_memory_bytes: int) -> Machine:
    return Machine(kind, links, stack(software, kind.name), host_memory_bytes)
