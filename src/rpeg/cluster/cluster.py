"""`Cluster`: racks of nodes of devices, the links between them, host memory and price."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any, Literal

from rpeg.cluster.device import DeviceKind
from rpeg.cluster.kinds import device_kind, device_kinds
from rpeg.errors import InputError, nearest
from rpeg.fields import Fields
from rpeg.hashing import kept_hash

Level = Literal["device", "node", "rack", "cluster"]
MOST_DEVICES = 1_000_000
"""Also of nodes and of processes on one host. More than any cluster has: a number beyond is a slip."""

LEVELS: tuple[Level, ...] = ("device", "node", "rack", "cluster")


@dataclass(frozen=True)
class Link:
    """What joins the devices of one level: within a node, a rack or the cluster.

    bandwidth_bytes_per_second: of one device, each direction. latency_seconds: of a message without content.
    transport: "efa" for Amazon's Elastic Fabric Adapter under libfabric; "": NVLink, InfiniBand, RoCE, PCI Express.
    """

    level: Level
    bandwidth_bytes_per_second: float
    latency_seconds: float
    source: str = ""
    transport: str = ""


@dataclass(frozen=True)
class Node:
    """Equal devices with one host. host_slots: processes that its processors run at once beside the devices'.

    price_per_hour: of the whole node in the user's currency, None where unknown. price_source: who says so.
    """

    kind: DeviceKind
    devices: int
    link: Link
    host_memory_bytes: int
    host_slots: int
    price_per_hour: float | None = None
    price_source: str = ""


@dataclass(frozen=True)
class Rack:
    """Nodes that share a switch."""

    nodes: tuple[Node, ...]
    link: Link


@dataclass(frozen=True)
class Device:
    """One device: its number in the cluster and where it is; nodes are numbered through the cluster."""

    index: int
    kind: DeviceKind
    node: int
    rack: int


@kept_hash
@dataclass(frozen=True)
class Cluster:
    """Devices 0 … n−1, numbered rack by rack and node by node; `link` joins the racks."""

    name: str
    racks: tuple[Rack, ...]
    link: Link

    def __post_init__(self) -> None:
        nodes = sum(len(rack.nodes) for rack in self.racks)
        devices = 0 if nodes > MOST_DEVICES else sum(node.devices for node in self.nodes)
        if max(nodes, devices) > MOST_DEVICES:
            raise InputError(
                f"cluster {self.name} has {nodes} nodes and {devices} devices, at most {MOST_DEVICES} are possible"
            )
        if not self.nodes or any(node.devices < 1 for node in self.nodes):
            raise InputError(f"cluster {self.name}: every rack needs a node, and every node a device")
        for kind in self.kinds:
            if any(kind.name == other.name and kind != other for other in self.kinds):
                raise InputError(
                    f"cluster {self.name}: two different device kinds are both named '{kind.name}'"
                )

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in the order of their devices."""
        return tuple(node for rack in self.racks for node in rack.nodes)

    @cached_property
    def kinds(self) -> tuple[DeviceKind, ...]:
        """The kinds of devices here, in order of first appearance."""
        return tuple(dict.fromkeys(node.kind for node in self.nodes))

    @cached_property
    def _first_devices(self) -> tuple[int, ...]:
        """The first device of each node, then the number of all devices."""
        return tuple(accumulate((node.devices for node in self.nodes), initial=0))

    @cached_property
    def _racks_of_nodes(self) -> tuple[int, ...]:
        return tuple(index for index, rack in enumerate(self.racks) for _ in rack.nodes)

    def __len__(self) -> int:
        """Number of devices."""
        return self._first_devices[-1]

    def node_of(self, device: int) -> int:
        """Number of the node that holds a device. InputError when there is no such device."""
        if not 0 <= device < len(self):
            raise InputError(f"cluster {self.name} has devices 0 … {len(self) - 1}, there is no {device}")
        return bisect_right(self._first_devices, device) - 1

    def rack_of(self, device: int) -> int:
        """Number of the rack that holds a device."""
        return self._racks_of_nodes[self.node_of(device)]

    def device(self, device: int) -> Device:
        """A device by its number."""
        node = self.node_of(device)
        return Device(device, self.nodes[node].kind, node, self._racks_of_nodes[node])

    def devices_of(self, node: int) -> range:
        """Numbers of a node's devices."""
        return range(self._first_devices[node], self._first_devices[node + 1])

    def level(self, devices: Iterable[int]) -> Level:
        """The lowest level that holds all these devices."""
        members = set(devices)
        nodes = {self.node_of(device) for device in members}
        if len({self._racks_of_nodes[node] for node in nodes}) > 1:
            return "cluster"
        if len(nodes) > 1:
            return "rack"
        return "node" if len(members) > 1 else "device"

    def link_of(self, devices: Iterable[int]) -> Link | None:
        """The link of the slowest level that a group of devices crosses; None for a single device."""
        members = sorted(set(devices))
        level = self.level(members)
        if level == "device":
            return None
        first = self.device(members[0])
        return {
            "node": self.nodes[first.node].link,
            "rack": self.racks[first.rack].link,
            "cluster": self.link,
        }[level]

    def link_between(self, a: int, b: int) -> Link | None:
        """The link of the slowest level between two devices; None for a device and itself."""
        return self.link_of((a, b))

    @property
    def price_per_hour(self) -> float | None:
        """Price of all nodes, None where that of one is unknown."""
        prices = [node.price_per_hour for node in self.nodes if node.price_per_hour is not None]
        return sum(prices) if len(prices) == len(self.nodes) else None

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; runs of equal nodes and equal racks are written once with a count."""
        return {
            "name": self.name,
            "kinds": [kind.to_json() for kind in self.kinds],
            "racks": [{"count": len(list(same)), **_rack_json(rack)} for rack, same in groupby(self.racks)],
            "link": _link_json(self.link),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Cluster:
        """The cluster that `to_json` wrote; nodes may be of bundled kinds too, which `kinds` need not repeat.

        InputError names a wrong, missing or unknown field.
        """
        fields = Fields("cluster", data)
        kinds = {kind.name: kind for kind in map(DeviceKind.from_json, fields.items("kinds", ()))}
        cluster = Cluster(
            name=fields.text("name"),
            racks=tuple(rack for part in fields.sequence("racks") for rack in _racks(part, kinds)),
            link=_link(fields.get("link"), "cluster"),
        )
        fields.finish()
        return cluster


def one_node(name: str, node: Node) -> Cluster:
    """A cluster of one node: its rack and cluster links join nothing, and repeat the node's."""
    rack = Link("rack", node.link.bandwidth_bytes_per_second, node.link.latency_seconds)
    cluster = Link("cluster", node.link.bandwidth_bytes_per_second, node.link.latency_seconds)
    return Cluster(name, (Rack((node,), rack),), cluster)


def _link_json(link: Link) -> dict[str, Any]:
    return {
        "bandwidth_bytes_per_second": link.bandwidth_bytes_per_second,
        "latency_seconds": link.latency_seconds,
        "source": link.source,
        **({"transport": link.transport} if link.transport else {}),
    }


def _node_json(node: Node) -> dict[str, Any]:
    return {
        "kind": node.kind.name,
        "devices": node.devices,
        "link": _link_json(node.link),
        "host_memory_bytes": node.host_memory_bytes,
        "host_slots": node.host_slots,
        "price_per_hour": node.price_per_hour,
        **({"price_source": node.price_source} if node.price_source else {}),
    }


def _rack_json(rack: Rack) -> dict[str, Any]:
    nodes = [{"count": len(list(same)), **_node_json(node)} for node, same in groupby(rack.nodes)]
    return {"nodes": nodes, "link": _link_json(rack.link)}


def _link(data: object, level: Level) -> Link:
    fields = Fields(f"{level} link", data)
    bandwidth = fields.number("bandwidth_bytes_per_second")
    latency, source = fields.number("latency_seconds"), fields.text("source", "", least=0)
    link = Link(level, bandwidth, latency, source, fields.text("transport", "", least=0))
    fields.finish()
    if not bandwidth:
        raise InputError(f"{level} link has bandwidth_bytes_per_second = 0, nothing would arrive")
    return link


def _kind(name: str, described: Mapping[str, DeviceKind]) -> DeviceKind:
    if name in described:
        return described[name]
    if name not in device_kinds():
        hint = nearest(name, (*described, *device_kinds()))
        raise InputError(f"node has the device kind '{name}', which is neither described nor bundled. {hint}")
    return device_kind(name)


def _nodes(data: object, kinds: Mapping[str, DeviceKind]) -> tuple[Node, ...]:
    fields = Fields("node", data)
    count, kind = fields.count("count", 1, most=MOST_DEVICES), fields.text("kind")
    price = fields.get("price_per_hour", None)
    node = Node(
        kind=_kind(kind, kinds),
        devices=fields.count("devices", most=MOST_DEVICES),
        link=_link(fields.get("link"), "node"),
        host_memory_bytes=fields.count("host_memory_bytes"),
        host_slots=fields.count("host_slots", most=MOST_DEVICES),
        price_per_hour=None if price is None else fields.number("price_per_hour"),
        price_source=fields.text("price_source", "", least=0),
    )
    fields.finish()
    return (node,) * count


def _racks(data: object, kinds: Mapping[str, DeviceKind]) -> tuple[Rack, ...]:
    fields = Fields("rack", data)
    count = fields.count("count", 1, most=MOST_DEVICES)
    nodes = tuple(node for part in fields.sequence("nodes") for node in _nodes(part, kinds))
    rack = Rack(nodes, _link(fields.get("link"), "rack"))
    fields.finish()
    return (rack,) * count
