"""`plan_job`: every construction estimated and ranked; the search for better ones joins behind the same call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rpeg.errors import PlanError
from rpeg.plan import Devices, Plan
from rpeg.search.baselines import baselines, with_searched
from rpeg.search.beside import Beside
from rpeg.search.budget import Budget, Progress
from rpeg.search.candidate import Baseline, Candidate, Misfit, Ranked
from rpeg.search.constructions import Construction, build, constructions
from rpeg.search.estimator import FINAL_STEPS, Estimator, fitting_sizes
from rpeg.search.given import NOTHING
from rpeg.search.infeasible import Infeasible
from rpeg.search.own import own_plan
from rpeg.search.problem import Problem

# The leading ones are estimated over more steps.
FINALISTS = 4

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
    told how the search goes on. Steps in rounds (dynamic sampling) are for constructions alone. The best plan is never
    slower than a baseline that the job allows.
    Raises Infeasible where none fits: the stage, the phase, and how many GiB are missing. What would make it fit is
    found by `ways_out`.
    """
    if problem.given:
        return _beside_own(problem, seed, budget, report)
    estimator = Estimator(problem, seed)
    if budget is not None and not problem.is_local and problem.graph.selector is None:
        from rpeg.search.searched import searched

        beside = Beside(lambda: baselines(estimator))
        try:
            ranked = searched(problem, seed=seed, budget=budget, report=report)
        except Infeasible:
            ranked = _constructed(estimator)  # says what is short, or has what the search overlooked
        known = beside.result()
    else:
        ranked = _constructed(estimator)
        known = baselines(estimator)
    simulated = [c for c in ranked.candidates if c.estimate.step.steps >= FINAL_STEPS]
    compared = with_searched(problem, known, simulated)
    return replace(
        ranked, candidates=(*_faster(ranked, compared, problem), *ranked.candidates), baselines=compared
    )


def _constructed(estimator: Estimator) -> Ranked:
    problem = estimator.problem
    found = [estimator.screened(c) for c in constructions(problem)]
    candidates = sorted((c for c in found if isinstance(c, Candidate)), key=_rank)
    misfits = tuple(m for m in found if isinstance(m, Misfit))
    if not candidates:
        raise _infeasible(problem, misfits)
    finals = [estimator.final(c) for c in candidates[:FINALISTS]]
    finals = sorted((*finals, *(m for c in finals if (m := estimator.migrated(c, EQUAL)))), key=_rank)
    return Ranked((*_simplest_of_equals_first(finals), *candidates[FINALISTS:]), misfits)


def _faster(ranked: Ranked, compared: tuple[Baseline, ...], problem: Problem) -> list[Candidate]:
    """Baselines that the job wants and that are faster than all else."""
    limit = min(c.estimate.step.mean_seconds for c in ranked.candidates[:FINALISTS])
    found = {b.candidate.plan: b.candidate for b in compared if b.candidate is not None}.values()
    wanted = (c for c in found if c.construction.staleness in problem.permissions.choices)
    return sorted((c for c in wanted if c.estimate.step.mean_seconds < limit), key=_rank)


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
    sizes = fitting_sizes(problem, construction)
    if isinstance(sizes, Misfit):
        return False
    try:
        build(problem, construction, sizes=sizes[0])
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
