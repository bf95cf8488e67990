"""The device kinds and clusters that come with RPEG as data files, a source beside each number."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import yaml

from rpeg.cluster.cluster import Cluster, Link, Node, Rack, one_node
from rpeg.cluster.device import DeviceKind
from rpeg.errors import InputError, nearest
from rpeg.fields import Fields

_DATA = resources.files("rpeg.cluster") / "data"


def device_kinds() -> tuple[str, ...]:
    """Names of the bundled device kinds."""
    return _names("kinds")


def systems() -> tuple[str, ...]:
    """Names of the bundled systems: nodes as they are sold, with the fabric that joins them."""
    return _names("systems")


@cache
def device_kind(name: str) -> DeviceKind:
    """A bundled device kind. InputError names the nearest when there is none of this name."""
    data = Fields("device kind", {"name": name, **_load("kinds", name)})
    sources = {}
    plain: dict[str, Any] = {"name": name}
    for key, entry in data.data.items():
        if key != "name":
            plain[key], sources[key] = _sourced(f"device kind {name}", key, entry)
    return DeviceKind.from_json({**plain, "sources": sources})


def system(name: str, nodes: int = 1, nodes_per_rack: int | None = None) -> Cluster:
    """A cluster of equal bundled nodes, such as `system("dgx-h100", nodes=4)`.

    nodes_per_rack: None puts all nodes in one rack. The link between racks is as fast as the one within
    (a fat tree), unless the file says otherwise.
    """
    fields = Fields(f"system {name}", _load("systems", name))
    node = _node(fields)
    rack, cluster = _link(fields, "rack"), _link(fields, "cluster")
    fields.finish()
    width = nodes_per_rack or nodes
    sizes = [min(width, nodes - start) for start in range(0, nodes, width)]
    if not sizes:
        raise InputError(f"system {name}: {nodes} nodes asked, at least 1 is needed")
    return Cluster(f"{name} × {nodes}", tuple(Rack((node,) * size, rack) for size in sizes), cluster)


def local(devices: int, memory_bytes: int, host_slots: int = 1) -> Cluster:
    """This machine: `devices` single-thread processes, each pinned to a core, that share `memory_bytes`."""
    if devices < 1:
        raise InputError(f"cluster cpu: {devices} devices asked, at least 1 is needed")
    fields = Fields("system cpu", _load("systems", "cpu"))
    node = _node(fields)
    kind = replace(node.kind, memory_bytes=memory_bytes // devices)
    node = replace(node, kind=kind, devices=devices, host_memory_bytes=memory_bytes, host_slots=host_slots)
    return one_node(f"cpu × {devices}", node)


def _node(fields: Fields) -> Node:
    price = fields.get("price_per_hour", None)
    return Node(
        kind=device_kind(fields.text("kind")),
        devices=int(_value(fields, "devices")),
        link=_link(fields, "node"),
        host_memory_bytes=int(_value(fields, "host_memory_bytes")),
        host_slots=int(_value(fields, "host_slots")),
        price_per_hour=None if price is None else float(_value(fields, "price_per_hour")),
    )


def _link(fields: Fields, level: Any) -> Link:
    part = Fields(f"{fields.what}, link {level}", fields.mapping(f"{level}_link"))
    bandwidth, source = _sourced(
        part.what, "bandwidth_bytes_per_second", part.get("bandwidth_bytes_per_second")
    )
    latency, second = _sourced(part.what, "latency_seconds", part.get("latency_seconds"))
    part.finish()
    return Link(level, float(bandwidth), float(latency), f"bandwidth: {source}; latency: {second}")


def _value(fields: Fields, key: str) -> Any:
    return _sourced(fields.what, key, fields.get(key))[0]


def _sourced(what: str, key: str, entry: object) -> tuple[Any, str]:
    """A value and its source, of an entry `{value: …, source: …}`."""
    fields = Fields(f"{what}, {key}", entry)
    value, source = fields.get("value"), fields.text("source")
    fields.finish()
    return value, source


def _names(folder: str) -> tuple[str, ...]:
    files = (_DATA / folder).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def _load(folder: str, name: str) -> dict[str, Any]:
    if name not in _names(folder):
        what = "device kind" if folder == "kinds" else "system"
        raise InputError(f"there is no {what} '{name}'. {nearest(name, _names(folder))}")
    data = yaml.safe_load((_DATA / folder / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return data
