"""Where and how a stage may run, for searches that move one stage at a time: meshes × options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rpeg.search.anneal import Found, Search
from rpeg.search.core.layout import HOST, TRAIN, State
from rpeg.search.structure import Structure
from rpeg.search.ways import MOST


@dataclass(frozen=True)
class Execution:
    """mesh: bits of islands. option: of the stage's layouts there, the fastest first. offload: 0 none … 2 all."""

    mesh: int
    option: int
    offload: int


def gridded(search: Search, structure: Structure) -> State:
    """Every stage on all devices of the first kind, in its fastest layout; islands as equal as they can be."""
    state = search.space.state(len(structure.names))
    kinds = search.space.units
    share = search.space.islands // len(kinds)
    island = 0
    for kind, units in enumerate(kinds):
        count = min(share, units)
        for i in range(count):
            state.size[island], state.kind[island] = units * (i + 1) // count - units * i // count, kind
            island += 1
    first = sum(1 << i for i in range(island) if state.kind[i] == 0)
    for stage in stages(structure):
        state.mask[stage], state.offload[stage] = first, resting(structure, stage)
    return state


def stages(structure: Structure) -> list[int]:
    """Those that have devices."""
    return [i for i in range(len(structure.names)) if structure.shape.kind[i] != HOST]


def resting(structure: Structure, stage: int) -> int:
    """Trainers stay on their devices; engines sleep, and frozen models leave."""
    return 0 if structure.shape.kind[stage] == TRAIN else 2


def executions(state: State, offloads: Sequence[int]) -> list[Execution]:
    """On consecutive islands of one kind, of any length."""
    used = [i for i in range(len(state.size)) if state.size[i] > 0]
    meshes = [
        sum(1 << i for i in used[a : b + 1])
        for a in range(len(used))
        for b in range(a, len(used))
        if state.kind[used[a]] == state.kind[used[b]]
    ]
    return [
        Execution(mesh, option, offload) for mesh in meshes for option in range(MOST) for offload in offloads
    ]


def moved(search: Search, found: Found, stage: int, execution: Execution) -> Found:
    """The same plan but for one stage; seconds 1e300 where that is none."""
    state = copied(found.state)
    state.mask[stage], state.option[stage] = execution.mesh, execution.option
    state.offload[stage] = execution.offload
    return search.evaluate(found.structure, state, found.name)


def copied(state: State) -> State:
    return State(*(array.copy() for array in state))
