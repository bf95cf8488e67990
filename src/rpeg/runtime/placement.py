"""Which node of a running Ray cluster is which node of a plan.

A plan's cluster has racks of nodes of devices; each of its nodes that is used gets a Ray node of its own, and those of a
rack get nodes that carry one `rack` label, where the nodes of the cluster carry any. Host slots are on the node that the
plan puts them on, beside its devices. Every worker takes a core of its node and, where its device is one, a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rpeg.cluster import device_kinds
from rpeg.errors import InputError
from rpeg.plan import Devices, Plan, device_lane, host_lane

RACK_LABEL = "rack"
"""Of a Ray node: `ray start --labels rack=a1`."""
ACCELERATOR_LABEL = "ray.io/accelerator-type"
"""Ray sets it where it knows the device: https://docs.ray.io/en/latest/ray-core/scheduling/labels.html"""


@dataclass(frozen=True)
class Need:
    """What a node of the plan needs. lanes: the workers there, by name → the GPUs (0 or 1) of each."""

    node: int
    rack: int
    kind: str
    lanes: Mapping[str, int]

    @property
    def gpus(self) -> int:
        return sum(self.lanes.values())

    @property
    def cores(self) -> int:
        return len(self.lanes)

    def __str__(self) -> str:
        devices = f"{self.gpus} GPUs of {self.kind} and " if self.gpus else ""
        return f"node {self.node}: {devices}{self.cores} cores"


@dataclass(frozen=True)
class Host:
    """A node of a Ray cluster. id: Ray's. rack, accelerator: its labels, "" where it has none."""

    id: str
    address: str
    cores: int
    gpus: int
    rack: str = ""
    accelerator: str = ""

    def fits(self, need: Need) -> bool:
        name = self.accelerator.lower().partition("-")[0]
        is_known = bool(name) and any(kind.startswith(name) for kind in device_kinds())
        other = bool(need.gpus) and is_known and not need.kind.startswith(name)
        return not other and self.cores >= need.cores and self.gpus >= need.gpus

    def __str__(self) -> str:
        rack = f" in rack {self.rack}" if self.rack else ""
        kind = f" of {self.accelerator}" if self.accelerator else ""
        return f"{self.address}{rack}: {self.gpus} GPUs{kind} and {self.cores} cores"


def needs(plan: Plan) -> tuple[Need, ...]:
    """Of each node that the plan uses, in their order."""
    lanes: dict[int, dict[str, int]] = {}
    for assignment in plan.assignments:
        if isinstance(assignment.block, Devices):
            for index in assignment.block.ids:
                device = plan.cluster.device(index)
                gpus = 0 if device.kind.name == "cpu" else 1
                lanes.setdefault(device.node, {})[device_lane(index)] = gpus
        else:
            slots = range(assignment.block.slots)
            own = lanes.setdefault(assignment.block.node, {})
            own.update({host_lane(assignment.block.node, slot): 0 for slot in slots})
    racks = [rack for rack, content in enumerate(plan.cluster.racks) for _ in content.nodes]
    return tuple(
        Need(node, racks[node], plan.cluster.nodes[node].kind.name, lanes[node]) for node in sorted(lanes)
    )


def place(needed: Sequence[Need], hosts: Sequence[Host]) -> Mapping[int, Host]:
    """A Ray node for each node of the plan, the same for the same cluster.

    The largest racks and nodes choose first, each the smallest that fits it. InputError says what is needed and what is
    there.
    """
    named = any(host.rack for host in hosts)  # else nobody knows of racks, and they are not looked at
    racks: dict[str, list[Host]] = {}
    for host in sorted(hosts, key=lambda host: (host.gpus, host.cores, host.address, host.id)):
        racks.setdefault(host.rack, []).append(host)
    wanted: dict[int, list[Need]] = {}
    for need in sorted(needed, key=lambda need: (-need.gpus, -need.cores, need.node)):
        wanted.setdefault(need.rack if named else 0, []).append(need)
    found: dict[int, Host] = {}
    for own in sorted(wanted.values(), key=lambda own: -len(own)):
        by_size = sorted(racks, key=lambda name: (len(racks[name]), name))
        fitting = ((name, in_rack(own, racks[name])) for name in by_size)
        rack, placed = next(((name, found) for name, found in fitting if found is not None), ("", None))
        if placed is None:
            raise InputError(_refusal(needed, own, hosts))
        found.update(placed)
        del racks[rack]
    return found


def in_rack(needed: Sequence[Need], hosts: Sequence[Host]) -> dict[int, Host] | None:
    """Each need, largest first, on the smallest of these hosts that is left and fits; None where one finds none."""
    left, found = list(hosts), {}
    for need in needed:
        host = next((host for host in left if host.fits(need)), None)
        if host is None:
            return None
        left.remove(host)
        found[need.node] = host
    return found


def _refusal(needed: Sequence[Need], own: Sequence[Need], hosts: Sequence[Host]) -> str:
    nodes, devices = len(needed), sum(need.gpus or need.cores for need in needed)
    named = any(host.rack for host in hosts)
    together = "in one rack " if named and len(own) > 1 else ""
    return (
        f"the plan needs {nodes} nodes with {devices} workers in all ({'; '.join(map(str, needed))}); there is no room "
        f"for {', '.join(f'node {need.node}' for need in own)} {together}on the {len(hosts)} nodes of the cluster "
        f"({'; '.join(map(str, hosts)) or 'none is alive'}). Add nodes, or plan for what is there"
        + (f"; without the label {RACK_LABEL} of Ray nodes racks are not looked at." if named else ".")
    )
