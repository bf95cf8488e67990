"""The canonical space: interchangeable devices as counts of units, and states as plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rpeg.search.core.layout import Site, State
from rpeg.search.model import Kinds

MOST_UNITS = 16
"""Pieces that the devices of a kind are cut into, at most: islands are made of whole ones."""


@dataclass(frozen=True)
class Space:
    """units: how many pieces each kind has. unit: devices of one. islands: of a plan, at most."""

    units: tuple[int, ...]
    unit: tuple[int, ...]
    islands: int

    def state(self, stages: int) -> State:
        """One with nothing in it."""
        z = np.zeros
        return State(
            z(self.islands, np.int64), z(self.islands, np.int64), *(z(stages, np.int64) for _ in range(4))
        )


def space(kinds: Sequence[Kinds], stages: int, most: int = MOST_UNITS) -> Space:
    """At most two islands a stage. Units are of devices within a node, else of whole nodes, as equal as can be."""
    unit = tuple(_unit(len(kind.ids), kind.width, most) for kind in kinds)
    units = tuple(len(kind.ids) // size for kind, size in zip(kinds, unit, strict=True))
    return Space(units, unit, min(2 * stages, 24))


def _unit(devices: int, width: int, most: int) -> int:
    size = 1
    while devices // size > most and size < width:
        size *= 2
    size = min(size, width)
    nodes = 1
    while devices // (size * nodes) > most:
        nodes *= 2
    return size * nodes


def alignment(site: Site, kind: int, first: int, end: int) -> int:
    """log2 of the most devices in a row that surely share a node, of a kind's units from `first` to before `end`."""
    unit, width = int(site.unit[kind]), int(site.width[kind])
    start, size = first * unit, (end - first) * unit
    if unit >= width or start // width == (start + size - 1) // width:
        return width.bit_length() - 1
    both = start | size | width
    return (both & -both).bit_length() - 1


def blocks(space: Space, kinds: Sequence[Kinds], state: State) -> list[tuple[int, ...]]:
    """The devices of each stage. Islands of a kind lie in a row, in their order."""
    start = [0] * len(kinds)
    islands: list[tuple[int, ...]] = []
    for size, kind in zip(state.size.tolist(), state.kind.tolist(), strict=True):
        begin = start[kind] * space.unit[kind]
        end = begin + size * space.unit[kind]
        islands.append(kinds[kind].ids[begin:end])
        start[kind] += size
    return [
        tuple(i for number, ids in enumerate(islands) if mask >> number & 1 for i in ids)
        for mask in state.mask.tolist()
    ]
