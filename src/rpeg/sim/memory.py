"""What each device and host of a plan holds, by phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rpeg.cost import Memory
from rpeg.ir import Kind
from rpeg.plan import Item, ItemKind, Lowered, Plan
from rpeg.sim import hardware, passes_memory
from rpeg.sim.facts import Facts

# The phases in which a stage's items lie.
PHASES: Mapping[Kind, tuple[str, ...]] = {
    Kind.GENERATE: ("generate",),
    Kind.INFERENCE: ("score",),
    Kind.TRAIN: ("update", "optimizer"),
}
_MOVING: Mapping[ItemKind, tuple[str, ...]] = {
    ItemKind.TRANSFER: ("transfer",),
    ItemKind.RELOAD: ("reload",),
    ItemKind.OFFLOAD: ("reload",),
}


@dataclass(frozen=True)
class DeviceMemory:
    """Devices that hold the same: what each has, and what its process holds in each phase.

    ids: their numbers, ascending. host: they are hosts, and these are the numbers of their nodes.
    """

    ids: tuple[int, ...]
    capacity_bytes: int
    phases: tuple[Memory, ...]
    host: bool = False

    @property
    def device(self) -> int:
        """The first of them."""
        return self.ids[0]

    @property
    def alike(self) -> int:
        """How many they are."""
        return len(self.ids)

    @property
    def name(self) -> str:
        """Of the first: ``device 3``, ``host of node 0``."""
        return f"host of node {self.device}" if self.host else f"device {self.device}"

    @property
    def peak(self) -> Memory:
        """The phase in which it holds most."""
        return max(self.phases, key=lambda memory: memory.bytes)

    @property
    def short_bytes(self) -> float:
        """How much is missing at the peak; 0 where it fits."""
        return max(0.0, self.peak.bytes - self.capacity_bytes)


def is_local(plan: Plan) -> bool:
    """Whether a plan's devices are processes of this machine, whose passes are measured as a whole."""
    return all(kind.name == "cpu" for kind in plan.cluster.kinds)


def device_memory(plan: Plan, lowered: Lowered, facts: Facts) -> tuple[DeviceMemory, ...]:
    """Of every device that the plan uses, in order of their numbers; of described hardware one for all that are alike.

    Then of hosts, where the hardware is described.
    """
    by_lane, devices = lane_memory(plan, lowered, facts), lowered.held.devices
    if is_local(plan):
        lanes = sorted(by_lane, key=lambda lane: devices[lane])
        return tuple(_device(plan, devices[lane][:1], by_lane[lane]) for lane in lanes)
    groups: dict[tuple[str, tuple[Memory, ...]], list[int]] = {}
    for lane, phases in by_lane.items():
        kind = plan.cluster.device(devices[lane][0]).kind.name
        groups.setdefault((kind, phases), []).extend(devices[lane])
    alike = sorted(groups.items(), key=lambda group: min(group[1]))
    own = tuple(_device(plan, ids, phases) for (_, phases), ids in alike)
    return (*own, *_hosts(plan, lowered, facts))


def lane_memory(plan: Plan, lowered: Lowered, facts: Facts) -> dict[str, tuple[Memory, ...]]:
    """The phases of each device lane."""
    if is_local(plan):
        return passes_memory.lane_memory(plan, lowered, facts)
    return hardware.lane_memory(plan, lowered, facts)


def of_item(plan: Plan, item: Item, phases: Sequence[Memory]) -> float:
    """Bytes that a process holds while an item runs; 0 where it has no phase for it (host work)."""
    names = _MOVING.get(item.kind) or PHASES.get(plan.graph.stage(item.name).kind, ())
    if not phases or not names:
        return 0.0
    held = [memory.bytes for memory in phases if memory.phase in names]
    return max(held, default=phases[0].bytes)


def stages_in(plan: Plan, memory: DeviceMemory, phase: str) -> tuple[str, ...]:
    """The stages that bring a phase about on a device, or on the devices of a host."""
    ids = set(plan.cluster.devices_of(memory.device)) if memory.host else {memory.device}
    return tuple(
        stage.name
        for stage in plan.graph.stages
        if stage.models
        and not ids.isdisjoint(getattr(plan.assignment(stage.name).block, "ids", ()))
        and (phase not in _OF_A_KIND or phase in PHASES.get(stage.kind, ()))
    )


_OF_A_KIND = frozenset(phase for names in PHASES.values() for phase in names)


def _device(plan: Plan, ids: Iterable[int], phases: tuple[Memory, ...]) -> DeviceMemory:
    own = tuple(sorted(ids))
    return DeviceMemory(own, plan.cluster.device(own[0]).kind.usable_memory_bytes, phases)


def _hosts(plan: Plan, lowered: Lowered, facts: Facts) -> list[DeviceMemory]:
    groups: dict[tuple[int, tuple[Memory, ...]], list[int]] = {}
    for node, phases in hardware.host_memory(plan, lowered, facts).items():
        groups.setdefault((plan.cluster.nodes[node].host_memory_bytes, phases), []).append(node)
    return [
        DeviceMemory(tuple(sorted(nodes)), capacity, phases, host=True)
        for (capacity, phases), nodes in groups.items()
        if capacity
    ]
