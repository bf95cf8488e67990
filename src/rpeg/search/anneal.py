"""Simulated annealing over structures and, within each, over states: `Search`.

A chain walks through structures: a transform is applied or undone, the state is carried over, and a burst of annealing
steps fits it to its new structure before the two are compared. Within a structure the compiled annealing runs; it stops
where a table lacks a row. Everything is counted in steps, so that a seed gives the same plan on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from rpeg.errors import GraphError, InputError, PlanError
from rpeg.search.budget import Budget, Progress
from rpeg.search.compiled.blocks import OK
from rpeg.search.compiled.chain import anneal, objective
from rpeg.search.compiled.evaluate import step_seconds
from rpeg.search.compiled.layout import HOST, State, Work, work
from rpeg.search.compiled.moves import below, copy_state, uniform
from rpeg.search.model import CostModel, Option
from rpeg.search.problem import Problem
from rpeg.search.space import Space
from rpeg.search.structure import Structure, structure
from rpeg.search.structures import early, neighbours
from rpeg.search.tables import Tables
from rpeg.sim import Draws
from rpeg.transforms import Transform


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
    def objective(self) -> float:
        """What the search minimises."""
        return float(objective(self.seconds, self.short))


@dataclass
class Search:
    """What all chains of one problem share: tables, structures by chain of transforms, plans found."""

    problem: Problem
    model: CostModel
    space: Space
    draws: Draws
    count: int
    tables: Tables
    report: Callable[[Progress], None] | None = None
    progress: Progress = field(default_factory=Progress)
    _structures: dict[tuple[str, ...], Structure | None] = field(default_factory=dict)
    _work: dict[tuple[str, ...], Work] = field(default_factory=dict)

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

    def evaluate(self, structure: Structure, state: State, name: str = "") -> Found:
        """Asks the cost model for whatever the tables lack. seconds 1e300: no plan."""
        w = self.work(structure)
        while True:
            shape = self.tables.shape(structure)
            code, seconds, short = step_seconds(shape, self.tables.rows, self.tables.site, state, w, 1e300)
            if code <= 1:
                self.progress.evaluations += 1
                return Found(name, structure, state, float(seconds), float(short))
            self.tables.fill(structure, w.miss)

    def work(self, structure: Structure) -> Work:
        """Arrays to work in."""
        key = tuple(map(str, structure.applied))
        if key not in self._work:
            self._work[key] = work(structure.shape, self.count, self.space.islands)
        return self._work[key]

    def options(self, found: Found) -> list[Option]:
        """The option of each stage of a state."""
        w = self.work(found.structure)
        shape = self.tables.shape(found.structure)
        step_seconds(shape, self.tables.rows, self.tables.site, found.state, w, 1e300)
        return [self.tables.placed[int(row)].option for row in w.row]

    def burst(
        self,
        start: Found,
        steps: int,
        hot: float,
        cold: float,
        random: np.typing.NDArray[np.int64],
        *,
        placed: bool = False,
    ) -> tuple[Found, Found]:
        """(the best state, the last) of so many annealing steps from a state."""
        s, stages = start.structure, len(start.structure.names)
        now, trial, best = (self.space.state(stages) for _ in range(3))
        for state in (now, best):
            copy_state(start.state, state)
        w = self.work(s)
        control = np.zeros(11)
        control[1:7] = steps, hot, cold, start.objective, start.objective, start.seconds
        while True:
            shape, t = self.tables.shape(s), self.tables
            code = anneal(shape, t.rows, t.site, now, trial, best, w, random, control, placed)
            if code == OK:
                break
            self.tables.fill(s, w.miss)
        self.progress.evaluations += int(control[7])
        ends = [self.evaluate(s, state, start.name) for state in (best, now)]
        self._tell(ends[0])
        return ends[0], ends[1]

    def _tell(self, found: Found) -> None:
        if found.fits and found.seconds < self.progress.best:
            self.progress.best = found.seconds
        self.progress.where = ", ".join(map(str, found.structure.applied)) or "as the algorithm is"
        if self.report is not None:
            self.report(self.progress)

    def taken_over(self, found: Found, target: Structure) -> Found:
        """A plan in another structure, with its shifts or, where that is better, with generation a step ahead."""
        state = self.carried(found, target)
        kept = self.evaluate(target, state, found.name)
        state.shift[:] = [0 if name in early(target.bare) else 1 for name in target.names]
        ahead = self.evaluate(target, state, found.name)
        if ahead.objective < kept.objective:
            return ahead
        return self.evaluate(target, self.carried(found, target), found.name)

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


def walk(search: Search, start: Found, budget: Budget, seed: int) -> Iterator[Found]:
    """The best of each structure that a chain comes to. Hot at first; structures change half of the time."""
    random = np.array([seed * 1000003 + 17, 0], np.int64)
    here, best = start, start
    for turn in range(budget.rounds):
        cool = 1 - turn / budget.rounds
        candidate = here
        if turn and below(random, 2):
            near = neighbours(search.problem, here.structure)
            if near:
                target = search.structure(near[below(random, len(near))])
                if target is None:
                    continue
                candidate = search.taken_over(here, target)
        try:
            found, _ = search.burst(candidate, budget.burst, 0.08 * cool + 0.004, 1e-4, random)
        except InputError:
            continue
        yield found
        worse = found.objective - here.objective
        if worse <= 0 or uniform(random) < math.exp(-worse / (0.03 * cool + 1e-6)):
            here = found
        if found.objective < best.objective:
            best = found
        elif turn % 3 == 2:
            here = best
