"""Devices, nodes, racks and the links between them, as data with sources."""

from rpeg.cluster.cluster import LEVELS, MOST_DEVICES, Cluster, Device, Level, Link, Node, Rack, one_node
from rpeg.cluster.device import DeviceKind
from rpeg.cluster.fabric import Fabric, Hop, fabric
from rpeg.cluster.kinds import device_kind, device_kinds, kind_named, relatives
from rpeg.cluster.library import cluster_from, local, read_cluster, system, systems, systems_of
from rpeg.cluster.resize import node_devices, resized, slowest_link, with_faster_links, with_nodes

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
    "node_devices",
    "one_node",
    "read_cluster",
    "relatives",
    "resized",
    "slowest_link",
    "system",
    "systems",
    "systems_of",
    "with_faster_links",
    "with_nodes",
]
