"""`plan_job`: every construction estimated and ranked; the search for better ones joins behind the same call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rpeg.errors import InputError, PlanError
from rpeg.plan import Devices, Plan, lower
from rpeg.search.budget import Budget, Progress
from rpeg.search.candidate import Candidate, Misfit, Ranked
from rpeg.search.constructions import Construction, build, constructions, unordered
from rpeg.search.given import NOTHING
from rpeg.search.infeasible import Infeasible, Shortage
from rpeg.search.own import own_plan
from rpeg.search.placements import Sizes, sizes_of
from rpeg.search.problem import Problem
from rpeg.sim import DeviceMemory, Draws, Memo, device_memory, estimate


@dataclass(frozen=True)
class _Known:
    """What plans of one problem share: answers of the cost model and drawn lengths."""

    memo: Memo
    draws: Draws


# Steady steps over which all are estimated, and then the leading ones once more.
SCREENING_STEPS, FINAL_STEPS, FINALISTS = 3, 10, 4

# Estimates of two plans that differ by less do not tell which is faster.
EQUAL = 0.02


def plan_job(
    problem: Problem,
    *,
    seed: int = 0,
    budget: Budget | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Ranked:
    """The good plans for a problem, ranked. The same for the same arguments.

    Constructions, all over a few drawn steps; the leading ones over more. Those are ahead of the rest in the answer.
    With a budget, plans on described hardware are searched for instead (`searched`): it says how long, and report is
    told how the search goes on.
    Raises Infeasible where none fits: the stage, the phase, and how many GiB are missing. What would make it fit is
    found by `ways_out`.
    """
    if problem.given:
        return _beside_own(problem, seed, budget, report)
    if budget is not None and not problem.is_local:
        from rpeg.search.searched import searched

        return searched(problem, seed=seed, budget=budget, report=report)
    known = _Known({}, Draws(problem.workload, seed))
    found = [_evaluate(problem, c, known, SCREENING_STEPS) for c in constructions(problem)]
    candidates = sorted((c for c in found if isinstance(c, Candidate)), key=_rank)
    misfits = tuple(m for m in found if isinstance(m, Misfit))
    if not candidates:
        raise _infeasible(problem, misfits)
    finals = sorted((_again(problem, c, known) for c in candidates[:FINALISTS]), key=_rank)
    return Ranked((*_simplest_of_equals_first(finals), *candidates[FINALISTS:]), misfits)


def _beside_own(
    problem: Problem, seed: int, budget: Budget | None, report: Callable[[Progress], None] | None
) -> Ranked:
    """The plan of the layouts that are given, beside those found without them."""
    own = own_plan(problem, seed)
    try:
        free = plan_job(replace(problem, given=NOTHING), seed=seed, budget=budget, report=report)
    except Infeasible:
        if own.candidate is None:
            raise
        return Ranked((own.candidate,), (), (), own)
    return replace(free, own=own)


def _simplest_of_equals_first(candidates: list[Candidate]) -> list[Candidate]:
    """What is no slower than the fastest but for the error of estimates: the one with the fewest transforms leads."""
    limit = candidates[0].estimate.step.mean_seconds * (1 + EQUAL)
    equals = [c for c in candidates if c.estimate.step.mean_seconds <= limit]
    leader = min(equals, key=lambda c: len(c.plan.applied))
    return [leader, *(c for c in candidates if c is not leader)]


def _rank(candidate: Candidate) -> tuple[float, int, str]:
    """Faster, then simpler ones first."""
    return candidate.estimate.step.mean_seconds, len(candidate.plan.applied), candidate.name


def _again(problem: Problem, candidate: Candidate, known: _Known) -> Candidate:
    """Estimated over more steps."""
    longer = estimate(candidate.plan, problem.facts, steps=FINAL_STEPS, memo=known.memo, draws=known.draws)
    return replace(candidate, estimate=longer)


def _evaluate(problem: Problem, construction: Construction, known: _Known, steps: int) -> Candidate | Misfit:
    """With the largest micro-batches and most responses held at once that fit."""
    sizes = _fitting_sizes(problem, construction)
    if isinstance(sizes, Misfit):
        return sizes
    try:
        plan = build(problem, construction, known.memo, known.draws, sizes)
    except PlanError as error:
        return Misfit(construction.name, " ".join(str(error).split("\n")[-1].split()))
    found = estimate(plan, problem.facts, steps=steps, memo=known.memo, draws=known.draws)
    return Candidate(construction, plan, found)


def _fitting_sizes(problem: Problem, construction: Construction) -> Sizes | Misfit:
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
    return _misfit(construction.name, plan, max(memory, key=lambda m: m.short_bytes), least)


def _misfit(name: str, plan: Plan, tightest: DeviceMemory, least: str) -> Misfit:
    shortage = Shortage.of(plan, tightest, least)
    return Misfit(name, str(shortage), shortage.short_bytes, shortage)


def _infeasible(problem: Problem, misfits: tuple[Misfit, ...]) -> Infeasible:
    short = [m for m in misfits if m.shortage]
    nearest = min(short, key=lambda m: m.short_bytes) if short else misfits[0]
    return Infeasible(problem, nearest.name, nearest.shortage or nearest.reason)


def can_fit(problem: Problem) -> bool:
    """Whether some construction can be run, streamed ones and larger staleness left out: what `plan_job` would find."""
    least = min(problem.permissions.choices)
    plain = (c for c in constructions(problem) if not c.parts and c.staleness == least)
    return any(_can_run(problem, c) for c in plain)


def _can_run(problem: Problem, construction: Construction) -> bool:
    sizes = _fitting_sizes(problem, construction)
    if isinstance(sizes, Misfit):
        return False
    try:
        build(problem, construction, sizes=sizes)
    except PlanError:
        return False
    return True


def devices_in_short(plan: Plan) -> tuple[tuple[str, str], ...]:
    """(devices, stages on them) of a plan, for tables."""
    found: dict[str, list[str]] = {}
    for stage in plan.graph.stages:
        block = plan.assignment(stage.name).block
        if isinstance(block, Devices):
            found.setdefault(str(block).removeprefix("devices "), []).append(stage.name)
    return tuple((devices, ", ".join(stages)) for devices, stages in sorted(found.items()))
