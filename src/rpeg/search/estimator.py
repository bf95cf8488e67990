"""`Estimator`: what the constructions of one problem take, with the largest sizes that fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rpeg.errors import InfeasibleError, InputError, PlanError
from rpeg.plan import Plan, lower
from rpeg.search.alternatives import alternative
from rpeg.search.candidate import Candidate, Misfit
from rpeg.search.constructions import Construction, build, unordered
from rpeg.search.infeasible import Shortage
from rpeg.search.migrations import with_migration
from rpeg.search.placements import Sizes, sizes_of
from rpeg.search.problem import Problem
from rpeg.sim import Draws, Memo, StageCosts, device_memory, estimate, steady_steps_of

# Steady steps over which all are estimated, and then the leading ones once more.
SCREENING_STEPS, FINAL_STEPS = 3, 10


@dataclass(frozen=True)
class Sketch:
    """A plan that fits, and its expected step over a few draws."""

    construction: Construction
    plan: Plan
    seconds: float


@dataclass
class Estimator:
    """Shares answers of the cost model and drawn lengths among the plans of a problem."""

    problem: Problem
    seed: int = 0
    _memo: Memo = field(default_factory=dict)
    _sketched: dict[object, Sketch | Misfit] = field(default_factory=dict)
    _estimated: dict[tuple[Plan, int], Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._draws = Draws(self.problem.workload, self.seed)

    def sketched(self, construction: Construction) -> Sketch | Misfit:
        """With the best of the sizes that fit."""
        key = construction.name, construction.applied
        if key not in self._sketched:
            sizes = fitting_sizes(self.problem, construction)
            self._sketched[key] = sizes if isinstance(sizes, Misfit) else self._best(construction, sizes)
        return self._sketched[key]

    def in_turn_seconds(self, construction: Construction) -> float:
        """What its stages take one after another, each with all memory to itself, in one drawn step.

        inf where one cannot be run; 0 for processes of this machine, whose costs nobody asks one by one.
        """
        if self.problem.is_local:
            return 0.0
        *_, emptied = sizes_of(self.problem)
        own = replace(self.problem, graph=construction.graph)
        try:
            plan = unordered(self.problem, construction, emptied)
            stages = [stage for stage in plan.graph.stages if stage.models]
            return sum(alternative(own, stage, plan.assignment(stage.name)).seconds for stage in stages)
        except (InputError, InfeasibleError):
            return math.inf

    def _best(self, construction: Construction, sizes: Sequence[Sizes]) -> Sketch | Misfit:
        made = [self.sketch(construction, one) for one in sizes]
        found = [one for one in made if isinstance(one, Sketch)]
        return min(found, key=lambda one: one.seconds) if found else made[0]

    def sketch(self, construction: Construction, sizes: Sizes) -> Sketch | Misfit:
        """With these sizes."""
        try:
            plan = build(self.problem, construction, self._memo, self._draws, sizes)
        except (InputError, PlanError) as error:
            return Misfit(construction.name, " ".join(str(error).split("\n")[-1].split()))
        costs = StageCosts(plan, self.problem.facts, self._memo)
        steady = steady_steps_of(plan, costs, self._draws, range(SCREENING_STEPS))
        return Sketch(construction, plan, steady.time.mean_seconds)

    def screened(self, construction: Construction) -> Candidate | Misfit:
        """Simulated over a few steps, with the best of the sizes that fit."""
        found = self.sketched(construction)
        return found if isinstance(found, Misfit) else self._at(found, SCREENING_STEPS)

    def final(self, found: Sketch | Candidate) -> Candidate:
        """Simulated over more steps."""
        return self._at(found, FINAL_STEPS)

    def migrated(self, found: Candidate, least: float) -> Candidate | None:
        """With its long responses migrated, where that saves a share of `least` of the step."""
        return with_migration(found, self.problem, self._memo, self._draws, least)

    def _at(self, found: Sketch | Candidate, steps: int) -> Candidate:
        plan, facts = found.plan, self.problem.facts
        if (plan, steps) not in self._estimated:
            made = estimate(plan, facts, steps=steps, memo=self._memo, draws=self._draws)
            self._estimated[plan, steps] = Candidate(found.construction, plan, made)
        return self._estimated[plan, steps]


def fitting_sizes(problem: Problem, construction: Construction) -> tuple[Sizes, ...] | Misfit:
    """The largest whose every phase fits on every device; on described hardware also the levels of offloading above
    it that leave room for other layouts."""
    found: dict[object, Sizes] = {}
    for sizes in sizes_of(problem):
        try:
            plan = unordered(problem, construction, sizes)
        except InputError as error:
            return Misfit(construction.name, str(error))
        layouts = tuple((a.parallelism, a.microbatch, a.recompute) for a in plan.assignments)
        if layouts in found:
            continue
        memory = device_memory(plan, lower(plan.graph, plan.assignments, plan.workload), problem.facts)
        if not any(m.short_bytes for m in memory):
            found[layouts] = sizes
            if problem.is_local:
                break
    if found:
        return tuple(found.values())
    least = "micro-batches of 1" if problem.is_local else "everything offloaded that can be"
    tightest = max(memory, key=lambda m: m.short_bytes)
    shortage = Shortage.of(plan, tightest, least)
    return Misfit(construction.name, str(shortage), shortage.short_bytes, shortage)
