"""The links between the devices of a record: what is said of them, else those of a typical system of the kind."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from rpeg.cluster import DeviceKind, Fabric, Link, fabric, relatives, system, systems_of

_NODES = 1024  # of the typical system: more than records have
_FORMS = ("dgx", "hgx", "gb")  # systems that most figures are from, where several hold a kind of device
_CLOUD_WORDS, _CLOUD_FORM = ("efa", "aws"), "aws"  # the Elastic Fabric Adapter is found there alone
_LATENCY_SECONDS = 2.5e-6  # NCCL src/graph/tuning.cc, hwLat of a ring with LL128 over PCI
_NETWORK_BYTES_PER_SECOND = 1.25e10


def fabric_of_words(kind: DeviceKind, words: str, per_node: int | None) -> Fabric:
    """The fabric of nodes of `per_node` devices (None: as many as usual), without an end to the nodes.

    words: such as "NVSwitch in node; 400 Gb/s RDMA per GPU"; a rate in them takes the place of the typical network's.
    An NVLink domain wider than a node (NVL72) keeps joining its nodes.
    """
    typical = _typical(kind, any(word in words.lower() for word in _CLOUD_WORDS))
    (inner, _), (outer, _) = typical.levels[0], typical.levels[-1]
    host = per_node or typical.devices_per_host
    joined = (
        host if typical.devices_per_node == typical.devices_per_host else max(host, typical.devices_per_node)
    )
    rate = network_rate(words, host)
    if rate is not None:
        outer = replace(outer, bandwidth_bytes_per_second=rate, source=words)
    return Fabric(((inner, joined), (outer, max(typical.devices, joined))), host)


def network_rate(words: str, devices_per_node: int) -> float | None:
    """Bytes a second, device and direction of the network that `words` describe; None where they give none.

    "4x100Gb RoCE per node", "1600 Gbps/node", "4 Omni-Path 100Gb/s links per node", "400 Gb/s RDMA per GPU".
    """
    found = re.search(r"(?:(\d+)\s*x\s*|(\d+)\s+[A-Za-z-]+\s+)?(\d+)\s*Gb(?:/s|ps|it/s)?(?![A-Za-z])", words)
    if not found:
        return None
    rate = int(found[1] or found[2] or 1) * int(found[3]) / 8 * 1e9
    per_node = re.match(r"[\s\w-]*(/\s*node|per node)", words[found.end() :])
    return rate / devices_per_node if per_node else rate


@cache
def _typical(kind: DeviceKind, cloud: bool) -> Fabric:
    """Of a system that holds such devices, or those whose kernels stand in for theirs; each kind has its own NVLink."""
    for relative in relatives(kind):
        names = systems_of(relative.name)
        if names:
            forms = (_CLOUD_FORM, *_FORMS) if cloud else _FORMS
            name = next((n for form in forms for n in names if n.startswith(form)), names[0])
            found = fabric(system(name, _NODES))
            return found if relative is kind else _with_own_link(found, kind)
    return _unknown(kind)


def _with_own_link(found: Fabric, kind: DeviceKind) -> Fabric:
    own = kind.nvlink_bandwidth_bytes_per_second or kind.host_bandwidth_bytes_per_second
    link, joined = found.levels[0]
    first = replace(link, bandwidth_bytes_per_second=own, source=f"{kind.name}: its own link")
    return replace(found, levels=((first, joined), *found.levels[1:]))


def _unknown(kind: DeviceKind) -> Fabric:
    """No system is described: eight devices a node, joined by what the kind has."""
    own = kind.nvlink_bandwidth_bytes_per_second or kind.host_bandwidth_bytes_per_second
    node = Link("node", own, _LATENCY_SECONDS, f"{kind.name}: its own link")
    rack = Link("rack", _NETWORK_BYTES_PER_SECOND, 2 * _LATENCY_SECONDS, "assumption: 100 Gb/s a device")
    return Fabric(((node, 8), (rack, 8 * _NODES)))
