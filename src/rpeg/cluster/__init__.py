"""Devices, nodes, racks and the links between them, as data with sources."""

from rpeg.cluster.cluster import LEVELS, Cluster, Device, Level, Link, Node, Rack, one_node
from rpeg.cluster.device import DeviceKind
from rpeg.cluster.fabric import Fabric, Hop, fabric
from rpeg.cluster.library import device_kind, device_kinds, local, system, systems

__all__ = [
    "LEVELS",
    "Cluster",
    "Device",
    "DeviceKind",
    "Fabric",
    "Hop",
    "Level",
    "Link",
    "Node",
    "Rack",
    "device_kind",
    "device_kinds",
    "fabric",
    "local",
    "one_node",
    "system",
    "systems",
]
