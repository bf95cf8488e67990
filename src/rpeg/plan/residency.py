"""What of all that can rest is on the devices at each turn of a lane: a matter of the order alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from rpeg.plan.item import ItemKind, Slot
from rpeg.plan.lowering import Lowered
from rpeg.plan.plan import Lane


def awake(lane: Lane, lowered: Lowered) -> Mapping[Slot, frozenset[str]]:
    """Names of the rests that are on a lane's devices while each of its slots runs, in the steady state.

    A rest is there from its reload to its offload, both included: bytes are on both sides while they move.
    """
    known = {rest.name for rest in lowered.rests}
    found: dict[Slot, set[str]] = {turn.slot: set() for turn in lane.turns}
    slots = [turn.slot for turn in lane.turns]
    for name in known & {slot.name for slot in slots}:
        for slot in _between(slots, name):
            found[slot].add(name)
    return {slot: frozenset(names) for slot, names in found.items()}


def side_by_side(lane: Lane, lowered: Lowered) -> frozenset[tuple[str, str]]:
    """(stage that runs, rest that is on the devices meanwhile and that it does not use): co-residency to account for."""
    users = {rest.name: rest for rest in lowered.rests}
    return frozenset(
        (slot.name, name)
        for slot, names in awake(lane, lowered).items()
        for name in names
        if slot.kind is ItemKind.RUN and not users[name].uses(slot)
    )


def _between(slots: list[Slot], name: str) -> Iterator[Slot]:
    """Slots of one period from each reload of `name` to the next offload; a period goes on with itself."""
    ends = [i for i, slot in enumerate(slots) if slot.name == name and slot.kind in _ENDS]
    round_trip = [*ends, *(ends[:1] and [ends[0] + len(slots)])]
    for first, last in pairwise(round_trip):
        if slots[first % len(slots)].kind is ItemKind.RELOAD:
            yield from (slots[i % len(slots)] for i in range(first, last + 1))


_ENDS = (ItemKind.RELOAD, ItemKind.OFFLOAD)
