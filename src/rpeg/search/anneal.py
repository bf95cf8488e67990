"""`Search`: plans of one problem evaluated and annealed by the core, over tables that are filled as it asks for rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from rpeg.errors import GraphError, PlanError
from rpeg.search.budget import Progress
from rpeg.search.core.layout import GENERATE, HOST, INVALID, OK, Ints, State
from rpeg.search.core.library import library
from rpeg.search.core.structs import (
    Chain,
    Count,
    Items,
    Struct,
    Work,
    shape_struct,
    site_struct,
    state_struct,
)
from rpeg.search.model import CostModel, Option
from rpeg.search.problem import Problem
from rpeg.search.space import Space
from rpeg.search.structure import Structure, structure
from rpeg.search.structures import early
from rpeg.search.tables import Tables
from rpeg.sim import Draws
from rpeg.transforms import Transform

HOT, COLD = 1.0, 0.003
"""Temperatures at the start and at the end of an annealing, in mean worsenings of the objective."""

UNLIMITED = 2**62
"""More than asking the cost model ever costs."""

NEVER = 1e300
"""Seconds of what is no plan."""


@dataclass(frozen=True, eq=False)
class Found:
    """A state of a structure, with its mean step and the share of memory that it lacks. name: where it comes from."""

    name: str
    structure: Structure
    state: State
    seconds: float
    short: float

    @property
    def fits(self) -> bool:
        return self.short == 0.0

    @property
    def is_plan(self) -> bool:
        return self.seconds < NEVER

    @cached_property
    def objective(self) -> float:
        """What the search minimises."""
        return float(library().rpeg_objective(self.seconds, self.short))


@dataclass(frozen=True)
class _Native:
    """A structure for the core, and room for its evaluations."""

    shape: Struct
    work: Work


@dataclass
class Search:
    """What all chains of one problem share: tables, structures by chain of transforms."""

    problem: Problem
    model: CostModel
    space: Space
    draws: Draws
    count: int
    tables: Tables
    report: Callable[[Progress], None] | None = None
    progress: Progress = field(default_factory=Progress)
    _structures: dict[tuple[str, ...], Structure | None] = field(default_factory=dict)
    _natives: dict[tuple[str, ...], _Native] = field(default_factory=dict)

    def branch(self) -> Search:
        """A search that knows what this one knows, and asks for itself from here on."""
        return replace(self, tables=self.tables.copy(), report=None, progress=Progress(), _natives={})

    def structure(self, applied: tuple[Transform, ...]) -> Structure | None:
        """The problem's graph under these transforms; None where that cannot be."""
        key = tuple(map(str, applied))
        if key not in self._structures:
            self._structures[key] = self._structure(applied)
        return self._structures[key]

    def _structure(self, applied: tuple[Transform, ...]) -> Structure | None:
        graph = self.problem.graph
        try:
            for transform in applied:
                graph = transform.apply(graph)
            return structure(self.problem, graph, applied, self.draws, self.count)
        except (GraphError, PlanError):
            return None

    @cached_property
    def _site(self) -> Struct:
        return site_struct(self.tables.site)

    def _native(self, s: Structure) -> _Native:
        key = tuple(map(str, s.applied))
        if key not in self._natives:
            shape = shape_struct(self.tables.shape(s), self.space.islands)
            self._natives[key] = _Native(shape, Work(shape, self.count))
        return self._natives[key]

    def _problem(self, native: _Native) -> tuple[object, object, object]:
        by = ctypes.byref
        return by(native.shape), by(self.tables.native), by(self._site)

    def evaluate(self, s: Structure, state: State, name: str = "") -> Found:
        """Asks the cost model for whatever the tables lack. seconds ≥ `NEVER`: no plan."""
        native, out, given = self._native(s), (ctypes.c_double * 2)(), state_struct(state)
        step = library().rpeg_step_seconds
        while True:
            code = step(*self._problem(native), ctypes.byref(given), native.work.pointer, NEVER, out)
            if code <= INVALID:
                self.progress.evaluations += 1
                return Found(name, s, state, out[0], out[1])
            self.tables.fill(s, native.work.missing)

    def items(self, found: Found) -> Items:
        """What a state's step is made of."""
        self.evaluate(found.structure, found.state)
        native = self._native(found.structure)
        return native.work.items(native.shape, self.count)

    def wandered(self, start: Found, count: int, seed: int) -> list[Found]:
        """Plans that random moves come by, each from the one before."""
        native, by, random = self._native(start.structure), ctypes.byref, ctypes.c_uint64(2 * seed + 1)
        here, found = start, list[Found]()
        for _ in range(100 * count):
            state = self.space.state(len(start.structure.names))
            before, after = state_struct(here.state), state_struct(state)
            if library().rpeg_move(*self._problem(native), by(before), by(after), by(random), 0):
                one = self.evaluate(start.structure, state, start.name)
                if one.is_plan:
                    here = one
                    found.append(one)
            if len(found) == count:
                break
        return found

    def repeated(self, found: Sequence[Found], times: int) -> float:
        """Evaluates states of one structure so many times each, to measure evaluations a second; their seconds' sum."""
        native, given = self._native(found[0].structure), [state_struct(one.state) for one in found]
        states = (type(given[0]) * len(given))(*given)
        problem = self._problem(native)
        return float(library().rpeg_repeated(*problem, states, len(given), native.work.pointer, times))

    def options(self, found: Found) -> list[Option]:
        """The option of each stage of a state."""
        self.evaluate(found.structure, found.state)
        rows = self._native(found.structure).work.rows(len(found.structure.names))
        return [self.tables.placed[row].option for row in rows]

    def burst(
        self,
        start: Found,
        steps: int,
        seed: int,
        *,
        hot: float = HOT,
        cold: float = COLD,
        placed: bool = False,
        allowance: int = UNLIMITED,
    ) -> tuple[Found, Found]:
        """(the best state, the last) of so many annealing steps from a state.

        hot, cold: temperatures, in mean worsenings; hot 0 takes only what is no worse. placed: blocks stay as they are.
        allowance: what asking the cost model may cost, about in milliseconds; then known rows must do.
        """
        s, stages = start.structure, len(start.structure.names)
        now, trial, best = (self.space.state(stages) for _ in range(3))
        for state in (now, best):
            for target, source in zip(state, start.state, strict=True):
                target[:] = source
        native, by = self._native(s), ctypes.byref
        chain = Chain(steps=steps, placed=placed, hot=hot, cold=cold, spread=0.05, allowance=allowance)
        chain.random = 2 * seed + 0x9E3779B97F4A7C15
        chain.now = chain.best = start.objective
        states = [state_struct(state) for state in (now, trial, best)]
        while True:
            arguments = (*map(by, states), native.work.pointer, by(chain))
            if library().rpeg_anneal(*self._problem(native), *arguments) == OK:
                break
            self.tables.fill(s, native.work.missing)
        self.progress.evaluations += chain.evaluations
        ends = [self.evaluate(s, state, start.name) for state in (best, now)]
        self._tell(ends[0])
        return ends[0], ends[1]

    def exhaust(
        self, s: Structure, trial: State, best: State, masks: Ints, choices: int, shifts: Ints, end: int
    ) -> None:
        """Goes through the states numbered 0 … end - 1 of a space; `best`: the best of those that fit.

        masks: that a stage may have. choices: options. shifts: (rows, stages), of all stages.
        """
        native, by = self._native(s), ctypes.byref
        count, states = Count(end=end, best=NEVER), [state_struct(trial), state_struct(best)]
        while True:
            spaces = masks.ctypes.data, len(masks), choices, shifts.ctypes.data, len(shifts)
            arguments = (*map(by, states), native.work.pointer, *spaces, by(count))
            if library().rpeg_exhaust(*self._problem(native), *arguments) == OK:
                break
            self.tables.fill(s, native.work.missing)
        self.progress.evaluations += count.evaluations

    def _tell(self, found: Found) -> None:
        if found.fits and found.seconds < self.progress.best:
            self.progress.best = found.seconds
        self.progress.where = ", ".join(map(str, found.structure.applied)) or "as the algorithm is"
        if self.report is not None:
            self.report(self.progress)

    def taken_over(self, found: Found, target: Structure) -> Found:
        """A plan in another structure: with its blocks and shifts, or, where that is better, with generation a step
        ahead, and with the stages that use old weights beside it."""
        states = [self.carried(found, target)]
        ahead = self.carried(found, target)
        ahead.shift[:] = [0 if name in early(target.bare) else 1 for name in target.names]
        states.append(ahead)
        for state in tuple(states):
            beside = State(*(array.copy() for array in state))
            if self._beside_generation(target, beside):
                states.append(beside)
        made = [self.evaluate(target, state, found.name) for state in states]
        return min(made, key=lambda one: one.objective)

    def _beside_generation(self, target: Structure, state: State) -> bool:
        """Sends what may use old weights to the generator's block; whether that changes anything."""
        generators = [i for i, kind in enumerate(target.shape.kind) if kind == GENERATE]
        stale = [int(edge[1]) for edge in target.shape.edges if edge[2] > 1 and edge[1] not in generators]
        moved = False
        for stage in stale:
            if state.mask[stage] != state.mask[generators[0]]:
                state.mask[stage], state.option[stage], moved = state.mask[generators[0]], 0, True
        return moved

    def carried(self, found: Found, target: Structure) -> State:
        """A state in another structure: each stage goes on as the stage of its name, or as what it was made of."""
        state = self.space.state(len(target.names))
        source, index = found.state, found.structure.index
        state.size[:], state.kind[:] = source.size, source.kind
        for place, name in enumerate(target.names):
            origin = _origin(name, index)
            if origin is None:
                origin = next(i for i, kind in enumerate(found.structure.shape.kind) if kind != HOST)
            state.mask[place], state.option[place] = source.mask[origin], source.option[origin]
            state.offload[place], state.shift[place] = source.offload[origin], source.shift[origin]
        _legal_shifts(target, state)
        return state


def _origin(name: str, index: Mapping[str, int]) -> int | None:
    """The stage that goes on under a name: of a fused one its first part, of an unfused one what it was in."""
    known = dict(index)
    if name in known:
        return known[name]
    parts = name.split("+")
    for part in parts:
        if part in known:
            return known[part]
    return next((i for other, i in known.items() if set(other.split("+")) & set(parts)), None)


def _legal_shifts(target: Structure, state: State) -> None:
    """Data flows to no smaller shift."""
    for _ in target.names:
        for a, b in target.shape.data.tolist():
            state.shift[b] = max(state.shift[b], state.shift[a])
    state.shift[:] = state.shift - state.shift.min()
