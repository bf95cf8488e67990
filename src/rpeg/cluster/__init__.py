"""Devices, nodes, racks and the links between them, as data with sources."""

from rpeg.cluster.cluster import LEVELS, MOST_DEVICES, Cluster, Device, Level, Link, Node, Rack, one_node
from rpeg.cluster.device import DeviceKind
from rpeg.cluster.fabric import Fabric, Hop, fabric
from rpeg.cluster.kinds import device_kind, device_kinds, kind_named, relatives
from rpeg.cluster.library import cluster_from, local, read_cluster, system, systems, systems_of

__all__ = [
    "LEVELS",
    "MOST_DEVICES",
    "Cluster",
    "Device",
    "DeviceKind",
    "Fabric",
    "Hop",
    "Level",
    "Link",
    "Node",
    "Rack",
    "cluster_from",
    "device_kind",
    "device_kinds",
    "fabric",
    "kind_named",
    "local",
    "one_node",
    "read_cluster",
    "relatives",
    "system",
    "systems",
    "systems_of",
]
