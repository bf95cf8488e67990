"""What of all that can rest is on the devices at each turn of a lane: a matter of the order alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from rpeg.plan.item import ItemKind, Slot
from rpeg.plan.lowered import Lowered
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
    """Co-residency to account for: (stage that runs or takes weights, another's rest that is there meanwhile)."""
    rests = {rest.name: rest for rest in lowered.rests}
    takers = {copy.name: copy.stages[0] for copy in lowered.copies}
    return frozenset(
        (takers.get(slot.name, slot.name), name)
        for slot, names in awake(lane, lowered).items()
        for name in names
        if slot.kind in (ItemKind.RUN, ItemKind.TRANSFER) and not rests[name].uses(slot)
    )


def together(lane: Lane, lowered: Lowered) -> frozenset[frozenset[str]]:
    """The sets of rests that are on a lane's devices at once while one of them moves; none within another."""
    sets = {names for slot, names in awake(lane, lowered).items() if slot.kind in _ENDS}
    return frozenset(names for names in sets if not any(names < other for other in sets))


def _between(slots: list[Slot], name: str) -> Iterator[Slot]:
    """Slots of one period from each reload of `name` to the next offload; a period goes on with itself."""
    ends = [i for i, slot in enumerate(slots) if slot.name == name and slot.kind in _ENDS]
    round_trip = [*ends, *(ends[:1] and [ends[0] + len(slots)])]
    for first, last in pairwise(round_trip):
        if slots[first % len(slots)].kind is ItemKind.RELOAD:
            yield from (slots[i % len(slots)] for i in range(first, last + 1))


_ENDS = (ItemKind.RELOAD, ItemKind.OFFLOAD)
