"""Where a plan's seconds and bytes go, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from rpeg.cost import Cost, Memory
from rpeg.errors import InputError, nearest
from rpeg.plan import ItemKind, Plan, Slot
from rpeg.report import forecast
from rpeg.report.tables import fitting, percent, table
from rpeg.report.words import name_words, slot_words
from rpeg.sim import DeviceMemory, Estimate
from rpeg.units import bytes_text, seconds_text


def stages(estimate: Estimate) -> Table:
    """Seconds of each stage and transfer in a step, on the lane that it keeps busiest."""
    rows = sorted(estimate.stages.items(), key=lambda pair: -pair[1])
    mean = estimate.step.mean_seconds
    return table(
        ("stage", ">seconds a step", ">of the step"),
        ((name_words(name), seconds_text(s), percent(s / mean if mean else 0.0)) for name, s in rows),
    )


def memory(devices: tuple[DeviceMemory, ...], width: int) -> Iterator[Table]:
    """Bytes of each device in each phase, and what it has: as many tables as a console `width` wide takes."""
    phases = list(dict.fromkeys(m.phase for device in devices for m in device.phases))
    rows = [(phase, *(_of_phase(device, phase) for device in devices)) for phase in phases]
    there = ("there is", *(bytes_text(device.capacity_bytes) for device in devices))
    return fitting(("memory", *(f">{forecast.alike(device)}" for device in devices)), (*rows, there), width)


def _of_phase(device: DeviceMemory, phase: str) -> str:
    return next((bytes_text(m.bytes) for m in device.phases if m.phase == phase), "")


def parts(devices: Sequence[DeviceMemory], phase: str | None = None) -> Iterator[Table]:
    """Of each device, and those like it, what it holds in a phase (None: in its fullest), the largest first.

    InputError names the nearest phase where there is none of this name.
    """
    known = dict.fromkeys(m.phase for device in devices for m in device.phases)
    if phase is not None and phase not in known:
        raise InputError(f"there is no phase '{phase}' in this plan. {nearest(phase, known)}")
    for device in devices:
        held = [m for m in device.phases if m.phase == phase] if phase else [device.peak]
        for memory in held:
            yield _parts(device, memory)


def _parts(device: DeviceMemory, memory: Memory) -> Table:
    rows = [
        (name, bytes_text(size)) for name, size in sorted(memory.parts, key=lambda part: -part[1]) if size
    ]
    where = forecast.alike(device) if device.host else f"{memory.phase} on {forecast.alike(device)}"
    return table(
        (where, ">bytes"),
        (*rows, ("together", bytes_text(memory.bytes))),
    )


def trees_of(plan: Plan, found: Mapping[str, Cost], wanted: Sequence[str]) -> Mapping[str, Cost]:
    """The trees of these stages and of what is moved for them; of all where none is named.

    InputError names the nearest stage where there is none of a name.
    """
    stages = [stage.name for stage in plan.graph.stages]
    for name in wanted:
        if name not in stages:
            raise InputError(f"there is no stage '{name}' in this plan. {nearest(name, stages)}")
    if not wanted:
        return found
    return {key: tree for key, tree in found.items() if _is_for(key, wanted)}


def title(key: str) -> str:
    """What a tree is of, in words."""
    kind, _, name = key.rpartition(" ")
    return slot_words(Slot(ItemKind(kind), name)) if kind else key


def _is_for(key: str, wanted: Sequence[str]) -> bool:
    """A key is a stage's name, or a kind of move and the name of what is moved: ``transfer a->b:weights:actor``."""
    kind, _, moved = key.rpartition(" ")
    return key in wanted if not kind else moved.split(":")[0].split("->")[-1] in wanted
