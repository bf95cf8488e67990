"""How reports call items, groups of devices and transforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rpeg.ir import WEIGHTS
from rpeg.plan import Devices, ItemKind, Plan, Slot
from rpeg.plan.assignment import ranges
from rpeg.transforms import Changes, Transform, parse_all


@dataclass(frozen=True)
class DeviceGroup:
    """Devices on which the same stages run."""

    ids: tuple[int, ...]
    stages: tuple[str, ...]

    @property
    def name(self) -> str:
        """``device 3``, ``devices 0-63``."""
        return device_name(self.ids)


def device_name(ids: tuple[int, ...]) -> str:
    """``device 3``, ``devices 0-63``."""
    return f"device{'s' if len(ids) > 1 else ''} {ranges(ids)}"


def device_groups(plan: Plan) -> tuple[DeviceGroup, ...]:
    """Who is where: every device that the plan uses, in the order of the groups' first devices."""
    stages: dict[int, list[str]] = {}
    for stage in plan.graph.stages:
        block = plan.assignment(stage.name).block
        for device in block.ids if isinstance(block, Devices) else ():
            stages.setdefault(device, []).append(stage.name)
    groups: dict[tuple[str, ...], list[int]] = {}
    for device in sorted(stages):
        groups.setdefault(tuple(stages[device]), []).append(device)
    return tuple(DeviceGroup(tuple(ids), names) for names, ids in groups.items())


def is_colocated(plan: Plan) -> bool:
    """Whether all stages that call models run on the same devices; what is only observed may lie anywhere."""
    aside = plan.graph.observers()
    blocks = (plan.assignment(s.name).block for s in plan.graph.stages if s.models and s.name not in aside)
    return len({block.ids for block in blocks if isinstance(block, Devices)}) <= 1


def slot_words(slot: Slot) -> str:
    """``generate``, ``weights of actor to generate``, ``rollouts to reward``, ``generate wakes up``."""
    if slot.kind is ItemKind.RUN:
        return slot.name
    if slot.kind is ItemKind.TRANSFER:
        return name_words(slot.name)
    stage = slot.name.partition(":")[0]
    return f"{stage} wakes up" if slot.kind is ItemKind.RELOAD else f"{stage} leaves the devices"


def name_words(name: str) -> str:
    """Of an item by its name alone: a stage, an edge (``a->b:weights:actor``), or what rests (``generate:model``)."""
    ends, colon, data = name.partition(":")
    if not colon:
        return name
    source, arrow, target = ends.partition("->")
    if not arrow:
        return f"{source} leaves and wakes up"
    model = data.removeprefix(WEIGHTS)
    return f"weights of {model} to {target}" if model != data else f"{data} to {target}"


def where(plan: Plan, slot: Slot) -> str:
    """The devices that an item runs on; "" for host work and what moves between devices."""
    if slot.kind is not ItemKind.RUN:
        return ""
    block = plan.assignment(slot.name).block
    return device_name(block.ids) if isinstance(block, Devices) else ""


def applied(plan: Plan) -> tuple[Transform, ...]:
    """The structural changes that made a plan's graph."""
    return parse_all(plan.applied)


def learning_in_short(plan: Plan) -> str:
    """What of learning a plan changes, for a cell of a table: ``staleness 1``; "" where nothing."""
    named: Mapping[str, None] = dict.fromkeys(
        f"staleness {getattr(t, 'staleness', '')}".strip() if t.changes is Changes.STALENESS else t.name
        for t in applied(plan)
        if t.changes is not Changes.SCHEDULE
    )
    return ", ".join(named)
