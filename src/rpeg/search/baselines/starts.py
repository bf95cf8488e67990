"""Where searches start: the structures and placements of the families, for annealing to choose layouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from rpeg.search.anneal import Found, Search
from rpeg.search.baselines import colocated, real, split, verl
from rpeg.search.constructions import Construction
from rpeg.search.core.layout import HOST, State
from rpeg.search.problem import Problem
from rpeg.search.space import alignment
from rpeg.search.structure import Structure
from rpeg.search.structures import early, generators
from rpeg.transforms import Transform
from rpeg.transforms.asynchrony import BoundedAsynchrony

FAMILIES = (
    colocated.any_layout,
    split.actor_rollout_split,
    real.meshes,
    verl.colocate_async,
    verl.separate_async,
    verl.one_step_off,
    verl.fully_async,
    split.asynchronous,
)
"""Annealing chooses the layouts, so that families which differ in those alone are one start."""

Wish = Mapping[str, tuple[int, int, int]]
"""By stage: the kind of its devices, and the first and the end of its units."""


@dataclass(frozen=True)
class Start:
    """A structure and a placement. name: in words."""

    name: str
    structure: Structure
    wish: Wish


def starts(search: Search) -> Iterator[Start]:
    """Each structure on each placement once, under the name of the first family that has it; the simplest first."""
    seen: set[object] = set()
    for family in (made(search.problem) for made in FAMILIES):
        for member in family.members:
            made = _start(search, family.name, member)
            key = None if made is None else (made.structure.graph, tuple(sorted(made.wish.items())))
            if made is not None and key not in seen:
                seen.add(key)
                yield made


def _start(search: Search, family: str, member: Construction) -> Start | None:
    """None where the graph cannot be had. A job's wished staleness is in every start."""
    problem = search.problem
    applied = member.applied[len(problem.applied) :]
    structure = search.structure(applied if member.staleness else (*wished(problem), *applied))
    if structure is None:
        return None
    wish = {
        s.name: _units(search, member.placement.blocks[s.name]) for s in structure.bare.stages if s.models
    }
    return Start(f"{family}: {member.name}", structure, wish)


def _units(search: Search, devices: tuple[int, ...]) -> tuple[int, int, int]:
    """The kind of the first of these consecutive devices, and the units that come nearest to those of that kind."""
    for kind, known in enumerate(search.model.kinds):
        if devices[0] in known.ids:
            unit, first = search.space.unit[kind], known.ids.index(devices[0])
            units, end = search.space.units[kind], first + len(devices)
            begin = min(round(first / unit), units - 1)
            return kind, begin, min(units, max(begin + 1, round(end / unit)))
    raise AssertionError(f"device {devices[0]} is of no kind")


def wished(problem: Problem) -> tuple[Transform, ...]:
    """The transforms that a job insists on: its staleness."""
    staleness = problem.permissions.wished_staleness
    if not staleness:
        return ()
    return tuple(
        BoundedAsynchrony(stage.name, staleness, problem.permissions.freshness)
        for stage in generators(problem.graph)
    )


def arranged(search: Search, start: Start) -> State:
    """A start as a state: islands between all cuts. A stage without a layout on its units has fewer."""
    s = start.structure
    state = search.space.state(len(s.names))
    spans = {name: _legal(search, s, name, span) for name, span in start.wish.items()}
    island = 0
    for kind, units in enumerate(search.space.units):
        cuts = sorted({0, units, *(c for k, a, b in spans.values() if k == kind for c in (a, b))})
        for a, b in pairwise(cuts):
            state.size[island], state.kind[island] = b - a, kind
            for name, (own, first, end) in spans.items():
                if own == kind and first <= a and b <= end:
                    state.mask[s.index[name]] |= 1 << island
            island += 1
    alone = [name for name in s.names if s.shape.kind[s.index[name]] != HOST]
    for name in alone:
        place = s.index[name]
        shares = any(o != name and state.mask[s.index[o]] & state.mask[place] for o in alone)
        state.offload[place] = 2 if shares else 0
    if any(isinstance(t, BoundedAsynchrony) for t in s.applied):
        state.shift[:] = [0 if name in early(s.bare) else 1 for name in s.names]
    return state


def placed(search: Search, start: Start, steps: int, seed: int = 0) -> Found:
    """The best that annealing finds with this placement: layouts, micro-batches, offloading and shifts."""
    first = search.evaluate(start.structure, arranged(search, start), start.name)
    if first.seconds >= 1e300:
        return first
    best, _ = search.burst(first, steps, seed, placed=True)
    return best


def _legal(
    search: Search, structure: Structure, name: str, span: tuple[int, int, int]
) -> tuple[int, int, int]:
    """The span, shortened until the stage has a layout on it."""
    kind, first, end = span
    stage = structure.index[name]
    for last in range(end, first, -1):
        align = alignment(search.tables.site, kind, first, last)
        if len(search.tables.options(structure, stage, kind, last - first, align)):
            return kind, first, last
    return span
