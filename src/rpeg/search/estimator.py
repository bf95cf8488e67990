"""`Estimator`: what the constructions of one problem take, with the largest sizes that fit."""

from __future__ import annotations

from collections.abc import Sequence
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
        """Over a few steps, with the best of the sizes that fit."""
        key = construction.name, construction.applied
        if key not in self._screened:
            sizes = fitting_sizes(self.problem, construction)
            self._screened[key] = sizes if isinstance(sizes, Misfit) else self._best(construction, sizes)
        return self._screened[key]

    def _best(self, construction: Construction, sizes: Sequence[Sizes]) -> Candidate | Misfit:
        made = [self.at(construction, one) for one in sizes]
        found = [one for one in made if isinstance(one, Candidate)]
        return min(found, key=lambda one: one.estimate.step.mean_seconds) if found else made[0]

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
