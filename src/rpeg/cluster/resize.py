"""The same cluster with another number of nodes or devices, or with faster links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile

from rpeg.cluster.cluster import Cluster, Link, Node, Rack
from rpeg.cluster.fabric import fabric
from rpeg.cluster.library import system, systems
from rpeg.errors import InputError


def with_nodes(cluster: Cluster, nodes: int) -> Cluster:
    """The first so many nodes; where there are fewer, more like the last, in racks as wide as the cluster's."""
    if nodes < 1:
        raise InputError(f"cluster {cluster.name}: {nodes} nodes asked, at least 1 is needed")
    kept = tuple(_first(cluster, nodes))
    missing = nodes - sum(len(rack.nodes) for rack in kept)
    if missing <= 0:
        return replace(cluster, name=_name(cluster, nodes), racks=kept)
    last, width = kept[-1], _rack_width(cluster, nodes)
    node, room = last.nodes[-1], max(0, width - len(last.nodes))
    filled = replace(last, nodes=last.nodes + (node,) * min(room, missing))
    missing -= min(room, missing)
    sizes = [min(width, missing - start) for start in range(0, missing, width)]
    racks = (*kept[:-1], filled, *(replace(last, nodes=(node,) * size) for size in sizes))
    return replace(cluster, name=_name(cluster, nodes), racks=racks)


def resized(cluster: Cluster, devices: int) -> Cluster:
    """So many devices of the cluster's: whole nodes, or a part of one. InputError where nodes are not filled.

    Of a mixed cluster only the number of its last nodes changes.
    """
    node, whole = cluster.nodes[-1], node_devices(cluster)
    if devices < 1:
        raise InputError(f"cluster {cluster.name}: {devices} devices asked, at least 1 is needed")
    if len(set(cluster.nodes)) > 1:
        return _mixed(cluster, devices)
    if devices < whole:
        one = _with_devices(cluster, node, devices)
        rack = replace(cluster.racks[0], nodes=(one,))
        return replace(cluster, name=_name(cluster, 1), racks=(rack,))
    nodes, rest = divmod(devices, whole)
    if rest:
        raise InputError(
            f"{devices} devices do not fill nodes of {whole} ({cluster.name}). "
            f"Nearest: {nodes * whole} or {(nodes + 1) * whole}."
        )
    full = _with_devices(cluster, node, whole)
    racks = tuple(replace(rack, nodes=(full,) * len(rack.nodes)) for rack in cluster.racks)
    return with_nodes(replace(cluster, racks=racks), nodes)


def node_devices(cluster: Cluster) -> int:
    """Devices of a whole node: of a bundled system its own, also where the cluster uses a part of one."""
    known = _bundled(cluster)
    return max(cluster.nodes[-1].devices, known.nodes[0].devices if known else 0)


def slowest_link(cluster: Cluster) -> Link:
    """Of the links that the cluster's devices need to reach each other."""
    return min((link for link, _ in fabric(cluster).levels), key=lambda link: link.bandwidth_bytes_per_second)


def with_faster_links(cluster: Cluster, factor: float) -> Cluster:
    """The slowest links that join its devices are so many times as fast; latencies stay."""
    slow = slowest_link(cluster)

    def faster(link: Link) -> Link:
        if link.bandwidth_bytes_per_second != slow.bandwidth_bytes_per_second:
            return link
        return replace(link, bandwidth_bytes_per_second=link.bandwidth_bytes_per_second * factor)

    racks = tuple(
        Rack(tuple(replace(node, link=faster(node.link)) for node in rack.nodes), faster(rack.link))
        for rack in cluster.racks
    )
    return replace(cluster, racks=racks, link=faster(cluster.link))


def _first(cluster: Cluster, nodes: int) -> Iterator[Rack]:
    for rack in cluster.racks:
        if nodes > 0:
            yield replace(rack, nodes=rack.nodes[:nodes])
        nodes -= len(rack.nodes)


def _mixed(cluster: Cluster, devices: int) -> Cluster:
    node = cluster.nodes[-1]
    nodes, rest = divmod(devices - len(cluster), node.devices)
    alike = sum(1 for _ in takewhile(lambda other: other == node, reversed(cluster.nodes)))
    if rest or nodes <= -alike:
        raise InputError(
            f"{devices} devices cannot be had from {cluster.name} with more or fewer of its last nodes, "
            f"of {node.devices} {node.kind.name} each"
        )
    return with_nodes(cluster, len(cluster.nodes) + nodes)


def _bundled(cluster: Cluster, nodes: int = 1) -> Cluster | None:
    """The bundled system whose name and device the cluster has."""
    name = cluster.name.partition(" × ")[0]
    found = _system(name, nodes) if name in systems() else None
    return found if found and found.kinds == cluster.kinds else None


_system = lru_cache(maxsize=64)(system)  # files are read once


def _rack_width(cluster: Cluster, nodes: int) -> int:
    """Nodes of a full rack: of a bundled system its own, else the widest rack of several, else all of them."""
    known = _bundled(cluster, nodes)
    racks = known.racks if known else cluster.racks
    return nodes if len(racks) == 1 else max(len(rack.nodes) for rack in racks)


def _with_devices(cluster: Cluster, node: Node, devices: int) -> Node:
    """A bundled node costs the same however many of its devices are used; any other, what its devices cost."""
    known = _bundled(cluster)
    price = node.price_per_hour
    if price is not None and not (known and known.nodes[0].price_per_hour == price):
        price *= devices / node.devices
    return replace(node, devices=devices, price_per_hour=price)


def _name(cluster: Cluster, nodes: int) -> str:
    """``dgx-h100 × 4``: what stood before the count stays."""
    if len(cluster.kinds) > 1:
        return f"{cluster.name.partition(' with ')[0]} with {nodes} nodes"
    return f"{cluster.name.partition(' × ')[0]} × {nodes}"
