"""Where searches start, and what they are compared with: placements and schedules that people use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from rpeg.ir import Kind
from rpeg.search.anneal import Found, Search
from rpeg.search.core.layout import HOST, State
from rpeg.search.problem import Problem
from rpeg.search.space import alignment
from rpeg.search.structure import Structure
from rpeg.search.structures import candidates, early, generators
from rpeg.transforms import Transform
from rpeg.transforms.asynchrony import BoundedAsynchrony
from rpeg.transforms.streaming import Streaming

Wish = Mapping[str, tuple[int, int, int]]
"""By stage: the kind of its devices, and the first and the end of its units."""


@dataclass(frozen=True)
class Start:
    """A structure and a placement. name: in words. serial: nothing is to run beside anything else."""

    name: str
    structure: Structure
    wish: Wish


def starts(search: Search) -> Iterator[Start]:
    """All that apply to a problem, the simplest first."""
    base = search.structure(wished(search.problem))
    if base is None:
        return
    for kind, units in enumerate(search.space.units):
        yield from _of_kind(search, base, kind, units)
    kinds = range(len(search.space.units))
    for first in kinds:
        for second in kinds:
            if first != second:
                names = search.model.kinds[first].name, search.model.kinds[second].name
                apart = _split(
                    search,
                    base,
                    (first, 0, search.space.units[first]),
                    (second, 0, search.space.units[second]),
                )
                yield Start(f"generate on {names[0]}, train on {names[1]}", base, apart)


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


def _of_kind(search: Search, base: Structure, kind: int, units: int) -> Iterator[Start]:
    everything = (kind, 0, units)
    words = f" on {search.model.kinds[kind].name}" if len(search.space.units) > 1 else ""
    together = _everyone(base, everything)
    yield Start(f"colocated{words}", base, together)
    for stream in _streams(search, base)[:1]:
        yield Start(f"colocate-async{words}", stream, _everyone(stream, everything))
    for cut in sorted({units // 4, units // 2, 3 * units // 4} - {0, units}):
        first, rest = (kind, 0, cut), (kind, cut, units)
        devices = search.space.unit[kind]
        name = f"split {cut * devices}+{(units - cut) * devices}{words}"
        yield Start(name, base, _split(search, base, first, rest))
        yield Start(f"{name}, assess with generate", base, _split(search, base, first, rest, beside=True))
        for stream in _streams(search, base)[:1]:
            yield Start(f"separate-async {name}", stream, _split(search, stream, first, rest))
        for structure, what in _asynchronous(search, base):
            yield Start(f"{what} {name}", structure, _split(search, structure, first, rest))
            frozen = _split(search, structure, first, rest, frozen=True)
            yield Start(f"{what} {name}, frozen models with generate", structure, frozen)
    yield from _meshes(search, base, kind, units, words)


def _meshes(search: Search, base: Structure, kind: int, units: int, words: str) -> Iterator[Start]:
    """Each trainer with what uses its model on devices of its own, by the parameters that are trained; as ReaL does."""
    trainers = [s for s in base.bare.stages if s.kind is Kind.TRAIN]
    if len(trainers) < 2 or units < 2:
        return
    cut = units // 2
    first, rest, everything = (kind, 0, cut), (kind, cut, units), (kind, 0, units)
    for generate, where in (("all", everything), (trainers[0].models[0], first)):
        wish = {}
        for stage in base.bare.stages:
            if stage.models:
                own = rest if set(stage.models) & set(trainers[1].models) else first
                wish[stage.name] = where if stage.kind is Kind.GENERATE else own
        yield Start(f"meshes, generate with {generate}{words}", base, wish)


def _everyone(structure: Structure, span: tuple[int, int, int]) -> Wish:
    return {s.name: span for s in structure.bare.stages if s.models}


def _split(
    search: Search,
    structure: Structure,
    first: tuple[int, int, int],
    rest: tuple[int, int, int],
    *,
    beside: bool = False,
    frozen: bool = False,
) -> Wish:
    """Generation apart from training; beside generation all assessment, or that by `frozen` models, or none."""
    graph, found = structure.bare, {}
    for stage in graph.stages:
        if stage.models:
            fixed = all(graph.trainer(model) is None for model in stage.models)
            assesses = stage.kind is Kind.INFERENCE and (beside or (frozen and fixed))
            found[stage.name] = first if stage.kind is Kind.GENERATE or assesses else rest
    return found


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


def _streams(search: Search, base: Structure) -> list[Structure]:
    """Streaming in a few parts."""
    found = [
        t
        for t in candidates(base.graph, search.problem.workload, search.problem.permissions)
        if isinstance(t, Streaming) and t.unit != "minibatch"
    ]
    made = (search.structure((*base.applied, t)) for t in found[1:2] or found)
    return [one for one in made if one is not None]


def _asynchronous(search: Search, base: Structure) -> Iterator[tuple[Structure, str]]:
    """verl's one-step-off policy, and its fully asynchronous one with all the staleness that is allowed."""
    most = search.problem.permissions.staleness
    for staleness, what in ((1, "one-step-off"), (most, "fully-async")):
        if staleness < 1 or base.applied or (staleness == 1 and what == "fully-async"):
            continue
        applied = tuple(
            BoundedAsynchrony(s.name, staleness, search.problem.permissions.freshness)
            for s in generators(base.bare)
        )
        if not all(search.problem.permissions.permits(t) for t in applied):
            continue
        made = search.structure(applied)
        if made is not None:
            for stream in _streams(search, made)[:1] if what == "fully-async" else ():
                made = stream
            yield made, what
    if base.applied:
        yield base, "one-step-off"
