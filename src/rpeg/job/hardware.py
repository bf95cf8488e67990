"""The devices of a job: processes on this machine (`cpu`), or hardware that is described, to plan for.

A job names bundled systems by nodes (`{dgx-h100: 4}`), device kinds by devices (`{h100: 16}`), several of them for a
mixed cluster, or a file that describes a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator, TypeAdapter

from rpeg.cluster import (
    Cluster,
    DeviceKind,
    Node,
    Rack,
    device_kinds,
    kind_named,
    read_cluster,
    system,
    systems,
    systems_of,
)
from rpeg.errors import InputError, nearest
from rpeg.job.fields import Count, PathText, Text
from rpeg.job.problems import show

LOCAL = "cpu"
"""Devices that are processes of this machine; all others are planned for, and never run here."""

Prices = tuple[tuple[str, float], ...]

_COUNTS: TypeAdapter[dict[str, int]] = TypeAdapter(dict[Text, Count])
_PATH: TypeAdapter[str] = TypeAdapter(PathText)

# What a section of a job needs that is only planned: nothing of it changes a prediction.
_UNPLANNED: Mapping[str, Mapping[str, Any]] = {
    "reward": {"name": "exact"},
    "optimizer": {"lr": 1e-6},
    "data": {},
}


def parse(value: object) -> dict[str, int] | str:
    """`{NAME: count}`, or the path of a cluster's file. Raises pydantic's ValidationError."""
    if isinstance(value, str):
        path = _PATH.validate_python(value)
        if (hint := _counted(path)) is not None:
            raise ValueError(f"is {show(value)}, {hint}")
        return path
    return _COUNTS.validate_python(value)


def _counted(name: str) -> str | None:
    """How to write a name that stands where a path or counts are expected; None for what can be a path."""
    if "/" in name or Path(name).suffix or Path(name).exists():
        return None
    spelt = name.lower()
    if spelt in systems():
        return f"a system: say how many nodes, such as {{{spelt}: 2}}."
    try:
        return f"a kind of device ({kind_named(spelt).name}): say how many, such as {{{spelt}: 8}}."
    except InputError:
        short = {kind.partition("-")[0] for kind in device_kinds()}
        known = nearest(spelt, [*systems(), *device_kinds(), *short])
    hint = f"{known} " if "mean" in known else ""
    return (
        f"which is no file here. {hint}Give nodes of systems, {{dgx-h100: 2}}, devices of kinds, {{h100: 16}}, "
        "processes of this machine, {cpu: 2}, or a path."
    )


ClusterChoice = Annotated[
    dict[str, int] | str,
    PlainValidator(parse),
    Field(description="systems by nodes, {dgx-h100: 4}; devices by kind, {h100: 16} or {cpu: 2}; or a file"),
]


def is_local(choice: object) -> bool:
    """Whether a job's devices are processes of this machine; also where it names nothing."""
    return isinstance(choice, Mapping) and set(choice) <= {LOCAL}


def for_planning(data: Mapping[str, Any]) -> dict[str, Any]:
    """A job's data with what planning for described hardware does without, and that hardware's usual dtype."""
    if "cluster" not in data or is_local(data["cluster"]):
        return dict(data)
    filled: dict[str, Any] = {"dtype": "bfloat16", "steps": 1000, "output": "runs/planned", **data}
    for section, values in _UNPLANNED.items():
        filled.setdefault(section, dict(values))
    return filled


def described(choice: Mapping[str, int] | str, prices: Mapping[str, float]) -> Cluster:
    """The cluster that is asked for. prices: of a device-hour, by what `choice` names or by kind of device.

    InputError for an unknown name, nodes in part, `cpu` beside other devices, and a price of what is not there.
    """
    if isinstance(choice, str):
        return priced(read_cluster(Path(choice)), prices)
    return _described(tuple(choice.items()), tuple(prices.items()))


def assumptions(choice: Mapping[str, int] | str) -> tuple[str, ...]:
    """Sentences on what the names leave open."""
    if isinstance(choice, str):
        return ()
    found = [
        f"{name}: devices of nodes like {_typical(kind_named(name))} ({kind_named(name).name})"
        for name in choice
        if name not in systems()
    ]
    if len(choice) > 1:
        found.append("between kinds of devices: the slower of their networks")
    return tuple(found)


@lru_cache(maxsize=16)
def _described(choice: tuple[tuple[str, int], ...], prices: Prices) -> Cluster:
    parts = [part(name, count) for name, count in choice]
    if len(parts) == 1:
        return priced(parts[0], dict(prices))
    racks = tuple(rack for part in parts for rack in part.racks)
    slowest = min((part.link for part in parts), key=lambda link: link.bandwidth_bytes_per_second)
    whole = Cluster(" + ".join(part.name for part in parts), racks, slowest)
    return priced(whole, dict(prices))


def part(name: str, count: int) -> Cluster:
    """So many nodes of a system, or devices of a kind. InputError as above."""
    if name == LOCAL:
        raise InputError(
            "cpu is a process of this machine and cannot be mixed with other devices. Remove it, or all others."
        )
    if name in systems():
        return system(name, nodes=count)
    try:
        kind = kind_named(name)
    except InputError as error:
        hint = nearest(name.lower(), [*systems(), *device_kinds()])
        words = hint if "mean" in hint else str(error)
        raise InputError(
            f"'{name}' is neither a system nor a kind of device. {words} A file describes others."
        ) from None
    return _of_kind(name, kind, count)


def _of_kind(name: str, kind: DeviceKind, devices: int) -> Cluster:
    chosen = _typical(kind)
    each = system(chosen).nodes[0].devices
    if devices < each:
        return system(chosen, devices=devices)
    nodes, rest = divmod(devices, each)
    if rest:
        raise InputError(
            f"{devices} {name} do not fill nodes of {each} ({chosen}). Nearest: {nodes * each} or {(nodes + 1) * each}."
        )
    return system(chosen, nodes=nodes)


def _typical(kind: DeviceKind) -> str:
    """The bundled system that devices of a kind most often come in."""
    known = systems_of(kind.name)
    if not known:
        raise InputError(
            f"no bundled system has {kind.name} devices. Give a file that describes the cluster: system, or racks."
        )
    order = ("dgx", "hgx")
    return min(
        known, key=lambda name: (next((i for i, p in enumerate(order) if name.startswith(p)), 9), name)
    )


def priced(cluster: Cluster, prices: Mapping[str, float]) -> Cluster:
    """With the prices of a device-hour, by kind or system. InputError for a price of what is not there."""
    if not prices:
        return cluster
    by_kind = {_kind_of(name, cluster): price for name, price in prices.items()}

    def priced(node: Node) -> Node:
        if node.kind.name not in by_kind:
            return node
        return replace(
            node, price_per_hour=by_kind[node.kind.name] * node.devices, price_source="the job's prices"
        )

    def node_price(rack: Rack) -> Rack:
        return replace(rack, nodes=tuple(map(priced, rack.nodes)))

    return replace(cluster, racks=tuple(node_price(rack) for rack in cluster.racks))


def _kind_of(name: str, cluster: Cluster) -> str:
    """The name of the kind that a price is for."""
    there = [kind.name for kind in cluster.kinds]
    if name in there:
        return name
    kind = system(name).kinds[0].name if name in systems() else kind_named(name).name
    if kind not in there:
        raise InputError(f"a price is given for {name}, and the cluster has {', '.join(there)}. Remove it.")
    return kind
