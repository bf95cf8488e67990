"""`Estimator`: what the constructions of one problem take, with the largest sizes that fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rpeg.errors import InputError, PlanError
from rpeg.plan import Plan, lower
from rpeg.search.candidate import Candidate, Misfit
from rpeg.search.constructions import Construction, build, unordered
from rpeg.search.infeasible import Shortage
from rpeg.search.placements import Sizes, sizes_of
from rpeg.search.problem import Problem
from rpeg.sim import Draws, Memo, device_memory, estimate

# Steady steps over which all are estimated, and then the leading ones once more.
SCREENING_STEPS, FINAL_STEPS = 3, 10


@dataclass
class Estimator:
    """Shares answers of the cost model and drawn lengths among the plans of a problem."""

    problem: Problem
    seed: int = 0
    _memo: Memo = field(default_factory=dict)
    _screened: dict[object, Candidate | Misfit] = field(default_factory=dict)
    _final: dict[Plan, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._draws = Draws(self.problem.workload, self.seed)

    def screened(self, construction: Construction) -> Candidate | Misfit:
        """Over a few steps, with the largest micro-batches and most responses held at once that fit."""
        key = construction.name, construction.applied
        if key not in self._screened:
            sizes = fitting_sizes(self.problem, construction)
            self._screened[key] = sizes if isinstance(sizes, Misfit) else self.at(construction, sizes)
        return self._screened[key]

    def at(self, construction: Construction, sizes: Sizes) -> Candidate | Misfit:
        """With these sizes, over a few steps."""
        try:
            plan = build(self.problem, construction, self._memo, self._draws, sizes)
        except (InputError, PlanError) as error:
            return Misfit(construction.name, " ".join(str(error).split("\n")[-1].split()))
        found = estimate(plan, self.problem.facts, steps=SCREENING_STEPS, memo=self._memo, draws=self._draws)
        return Candidate(construction, plan, found)

    def final(self, candidate: Candidate) -> Candidate:
        """Over more steps."""
        plan = candidate.plan
        if plan not in self._final:
            longer = estimate(plan, self.problem.facts, steps=FINAL_STEPS, memo=self._memo, draws=self._draws)
            self._final[plan] = replace(candidate, estimate=longer)
        return self._final[plan]


def fitting_sizes(problem: Problem, construction: Construction) -> Sizes | Misfit:
    """The largest sizes whose every phase fits on every device."""
    for sizes in sizes_of(problem):
        try:
            plan = unordered(problem, construction, sizes)
        except InputError as error:
            return Misfit(construction.name, str(error))
        lowered = lower(plan.graph, plan.assignments, plan.workload)
        memory = device_memory(plan, lowered, problem.facts)
        if not any(m.short_bytes for m in memory):
            return sizes
    least = "micro-batches of 1" if problem.is_local else "everything offloaded that can be"
    tightest = max(memory, key=lambda m: m.short_bytes)
    shortage = Shortage.of(plan, tightest, least)
    return Misfit(construction.name, str(shortage), shortage.short_bytes, shortage)
