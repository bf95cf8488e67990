"""Which devices make up a lane, and which of a stage's data-parallel replicas a lane works for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from rpeg.plan.assignment import Assignment, Devices, Host, device_lane, host_lane, ranges


@dataclass(frozen=True, slots=True)
class Cell:
    """Lanes that work on the same samples: those of these data-parallel replicas of a stage."""

    lanes: tuple[str, ...]
    replicas: tuple[int, ...]


@dataclass(frozen=True)
class Lanes:
    """The device lanes of a plan. lane_of: the lane of each device that the assignments use."""

    lane_of: Mapping[int, str]

    @cached_property
    def devices(self) -> Mapping[str, tuple[int, ...]]:
        """The devices of each lane, ascending."""
        found: dict[str, list[int]] = {}
        for device in sorted(self.lane_of):
            found.setdefault(self.lane_of[device], []).append(device)
        return {lane: tuple(ids) for lane, ids in found.items()}

    def of(self, assignment: Assignment, item: int | None = None) -> tuple[str, ...]:
        """The lanes of one replica (or bundle, or host slot) of a stage; None: of all."""
        key = assignment, item
        if key not in self._known:
            self._known[key] = self._of(assignment, item)
        return self._known[key]

    @cached_property
    def _known(self) -> dict[tuple[Assignment, int | None], tuple[str, ...]]:
        return {}

    def _of(self, assignment: Assignment, item: int | None) -> tuple[str, ...]:
        if isinstance(assignment.block, Host):
            slots = range(assignment.block.slots) if item is None else (item,)
            return tuple(host_lane(assignment.block.node, slot) for slot in slots)
        ids = assignment.block.ids if item is None else assignment.devices_of(item)
        return tuple(dict.fromkeys(map(self.lane_of.__getitem__, ids)))

    def cells(self, assignment: Assignment, lanes: Sequence[str]) -> tuple[Cell, ...]:
        """These lanes of a stage by the samples that they work on, in the order of their replicas.

        A lane that holds devices of several replicas has the samples of all of them. A host slot is on its own.
        """
        if isinstance(assignment.block, Host):
            return tuple(Cell((lane,), (i,)) for i, lane in enumerate(lanes))
        return _cells(assignment, tuple(lanes), tuple(self.devices[lane] for lane in lanes))


@lru_cache(maxsize=256)
def lanes_of(assignments: tuple[Assignment, ...]) -> Lanes:
    """Devices are one lane where all stages that use them have them in one bundle; else each is one."""
    blocks = [a for a in assignments if isinstance(a.block, Devices)]
    devices = sorted({i for a in blocks for i in a.block.ids})  # type: ignore[union-attr]
    place = {device: row for row, device in enumerate(devices)}
    signs = np.full((len(devices), len(blocks)), -1)
    for number, a in enumerate(blocks):
        assert isinstance(a.block, Devices)
        own = [place[i] for i in a.block.ids]
        signs[own, number] = a.bundle_numbers() if a.bundles else [-2 - row for row in own]
    lane_of: dict[int, str] = {}
    _, lane = np.unique(signs, axis=0, return_inverse=True)
    for rows in (np.flatnonzero(lane == n) for n in range(lane.max(initial=-1) + 1)):
        ids = [devices[row] for row in rows]
        lane_of |= dict.fromkeys(ids, _name(ids))
    return Lanes(lane_of)


@lru_cache(maxsize=64)
def _ranks(block: Devices) -> Mapping[int, int]:
    return {device: rank for rank, device in enumerate(block.ids)}


@lru_cache(maxsize=1024)
def _cells(
    assignment: Assignment, lanes: tuple[str, ...], devices: tuple[tuple[int, ...], ...]
) -> tuple[Cell, ...]:
    assert isinstance(assignment.block, Devices)
    rank = _ranks(assignment.block)
    found: list[tuple[list[str], set[int]]] = []
    for lane, ids in zip(lanes, devices, strict=True):
        replicas = {assignment.parallelism.replica_of(rank[i]) for i in ids if i in rank}
        joined: tuple[list[str], set[int]] = ([], replicas)
        for cell in [cell for cell in found if cell[1] & replicas]:
            found.remove(cell)
            joined = (joined[0] + cell[0], joined[1] | cell[1])
        found.append((joined[0] + [lane], joined[1]))
    found.sort(key=lambda cell: min(cell[1], default=0))
    return tuple(Cell(tuple(names), tuple(sorted(replicas))) for names, replicas in found)


def _name(ids: list[int]) -> str:
    return device_lane(ids[0]) if len(ids) == 1 else f"devices{ranges(tuple(ids))}"
