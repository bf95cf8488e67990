"""The systems that come with RPEG, a source beside each number, and clusters that users describe in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rpeg.cluster.cluster import MOST_DEVICES, Cluster, Level, Link, Node, Rack, one_node
from rpeg.cluster.kinds import device_kind
from rpeg.cluster.sources import load, names, sourced
from rpeg.errors import InputError
from rpeg.fields import Fields, parse_json, read_text


def systems() -> tuple[str, ...]:
    """Names of the bundled systems: nodes as they are sold, with the fabric that joins them."""
    return names("systems")


@cache
def systems_of(kind: str) -> tuple[str, ...]:
    """The bundled systems whose nodes hold devices of this kind."""
    return tuple(name for name in systems() if load("systems", name)["kind"] == kind)


def system(
    name: str, nodes: int = 1, nodes_per_rack: int | None = None, devices: int | None = None
) -> Cluster:
    """A cluster of equal bundled nodes, such as `system("dgx-h100", nodes=4)`.

    nodes_per_rack: None is what the system's file says (18 trays of an NVL72), else all nodes in one rack.
    devices: fewer than the system's nodes have, for those that use a part of them.
    """
    fields = Fields(f"system {name}", load("systems", name))
    node = _node(fields)
    rack, cluster = _link(fields, "rack"), _link(fields, "cluster")
    usual = int(_value(fields, "nodes_per_rack")) if "nodes_per_rack" in fields.data else nodes
    fields.finish()
    if nodes < 1:
        raise InputError(f"system {name}: {nodes} nodes asked, at least 1 is needed")
    width = usual if nodes_per_rack is None else nodes_per_rack
    if width < 1:
        raise InputError(f"system {name}: {width} nodes a rack asked, at least 1 is needed")
    node = node if devices is None else _part(name, node, devices)
    sizes = [min(width, nodes - start) for start in range(0, nodes, width)]
    return Cluster(f"{name} × {nodes}", tuple(Rack((node,) * size, rack) for size in sizes), cluster)


def local(devices: int, memory_bytes: int, host_slots: int = 1) -> Cluster:
    """This machine: `devices` single-thread processes, each pinned to a core, that share `memory_bytes`."""
    if devices < 1:
        raise InputError(f"cluster cpu: {devices} devices asked, at least 1 is needed")
    fields = Fields("system cpu", load("systems", "cpu"))
    node = _node(fields)
    kind = replace(node.kind, memory_bytes=memory_bytes // devices)
    node = replace(node, kind=kind, devices=devices, host_memory_bytes=memory_bytes, host_slots=host_slots)
    return one_node(f"cpu × {devices}", node)


def cluster_from(data: object) -> Cluster:
    """A cluster as people describe it: `Cluster.to_json`'s form, or `{system: dgx-h100, nodes: 4}`.

    In the first form a node's `kind` is one of the file's `kinds` or the name of a bundled one.
    InputError names a wrong, missing or unknown field.
    """
    fields = Fields("cluster", data)
    if "system" not in fields.data:
        return Cluster.from_json(fields.data)
    name, nodes = fields.text("system"), fields.count("nodes", 1, most=MOST_DEVICES)
    width, devices = fields.get("nodes_per_rack", None), fields.get("devices", None)
    fields.finish()
    return system(
        name,
        nodes,
        None if width is None else fields.count("nodes_per_rack"),
        None if devices is None else fields.count("devices"),
    )


def read_cluster(path: Path) -> Cluster:
    """The cluster that a YAML or JSON file describes, see `cluster_from`. InputError where it cannot be read."""
    text = read_text(path)
    if path.suffix == ".json":
        return cluster_from(parse_json(text, path))
    try:
        data: Mapping[str, Any] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {error}") from None
    return cluster_from(data)


def _part(name: str, node: Node, devices: int) -> Node:
    """A node of which only some devices are used; host memory, processors and price are those of the whole."""
    if not 1 <= devices <= node.devices:
        raise InputError(f"system {name} has {node.devices} devices a node, {devices} asked")
    return replace(node, devices=devices)


def _node(fields: Fields) -> Node:
    price, source = None, ""
    if fields.get("price_per_hour", None) is not None:
        price, source = sourced(fields.what, "price_per_hour", fields.get("price_per_hour"))
    return Node(
        kind=device_kind(fields.text("kind")),
        devices=int(_value(fields, "devices")),
        link=_link(fields, "node"),
        host_memory_bytes=int(_value(fields, "host_memory_bytes")),
        host_slots=int(_value(fields, "host_slots")),
        price_per_hour=None if price is None else float(price),
        price_source=source,
    )


def _link(fields: Fields, level: Level) -> Link:
    part = Fields(f"{fields.what}, link {level}", fields.mapping(f"{level}_link"))
    bandwidth, source = sourced(
        part.what, "bandwidth_bytes_per_second", part.get("bandwidth_bytes_per_second")
    )
    latency, second = sourced(part.what, "latency_seconds", part.get("latency_seconds"))
    transport = part.text("transport", "", least=0)
    part.finish()
    return Link(level, float(bandwidth), float(latency), f"bandwidth: {source}; latency: {second}", transport)


def _value(fields: Fields, key: str) -> Any:
    return sourced(fields.what, key, fields.get(key))[0]
