"""`plan_job`: every construction estimated and ranked; the search for better ones joins behind the same call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rpeg.cluster import local
from rpeg.errors import InfeasibleError, PlanError
from rpeg.plan import Devices, Plan
from rpeg.search.baselines import baselines
from rpeg.search.budget import Budget, Progress
from rpeg.search.candidate import Baseline, Candidate, Misfit, Ranked
from rpeg.search.constructions import Construction, build, constructions
from rpeg.search.estimator import Estimator, fitting_sizes
from rpeg.search.problem import Problem
from rpeg.units import GIB

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
    """The good plans for a problem, ranked, and its baselines. The same for the same arguments.

    Constructions, all over a few drawn steps; the leading ones over more. Those are ahead of the rest in the answer.
    With a budget, plans on described hardware are searched for instead (`searched`): it says how long, and report is
    told how the search goes on. The best plan is never slower than a baseline that the job allows.
    Raises InfeasibleError where none fits: the stage, the phase, how many GiB are missing, and the smallest change
    among those tried that would fit.
    """
    estimator = Estimator(problem, seed)
    if budget is not None and not problem.is_local:
        from rpeg.search.searched import searched  # numba is slow to import

        ranked = searched(problem, seed=seed, budget=budget, report=report)
    else:
        ranked = _constructed(estimator)
    compared = baselines(estimator)
    return replace(
        ranked, candidates=(*_faster(ranked, compared, problem), *ranked.candidates), baselines=compared
    )


def _constructed(estimator: Estimator) -> Ranked:
    problem = estimator.problem
    found = [estimator.screened(c) for c in constructions(problem)]
    candidates = sorted((c for c in found if isinstance(c, Candidate)), key=_rank)
    misfits = tuple(m for m in found if isinstance(m, Misfit))
    if not candidates:
        raise InfeasibleError(_infeasible(problem, misfits))
    finals = sorted((estimator.final(c) for c in candidates[:FINALISTS]), key=_rank)
    return Ranked((*_simplest_of_equals_first(finals), *candidates[FINALISTS:]), misfits)


def _faster(ranked: Ranked, compared: tuple[Baseline, ...], problem: Problem) -> list[Candidate]:
    """Baselines that the job wants and that are faster than all else."""
    limit = min(c.estimate.step.mean_seconds for c in ranked.candidates[:FINALISTS])
    found = {b.candidate.plan: b.candidate for b in compared if b.candidate is not None}.values()
    wanted = (c for c in found if c.construction.staleness in problem.permissions.choices)
    return sorted((c for c in wanted if c.estimate.step.mean_seconds < limit), key=_rank)


def _simplest_of_equals_first(candidates: list[Candidate]) -> list[Candidate]:
    """What is no slower than the fastest but for the error of estimates: the one with the fewest transforms leads."""
    limit = candidates[0].estimate.step.mean_seconds * (1 + EQUAL)
    equals = [c for c in candidates if c.estimate.step.mean_seconds <= limit]
    leader = min(equals, key=lambda c: len(c.plan.applied))
    return [leader, *(c for c in candidates if c is not leader)]


def _rank(candidate: Candidate) -> tuple[float, int, str]:
    """Faster, then simpler ones first."""
    return candidate.estimate.step.mean_seconds, len(candidate.plan.applied), candidate.name


def _infeasible(problem: Problem, misfits: tuple[Misfit, ...]) -> str:
    short = [m for m in misfits if m.short_bytes]
    if not short:
        reasons = "".join(f"\n  {m.name}: {m.reason}" for m in misfits)
        return f"no plan for {problem.graph.name} can run on {problem.cluster.name}:{reasons}"
    nearest = min(short, key=lambda m: m.short_bytes)
    return (
        f"no plan for {problem.graph.name} fits on {problem.cluster.name}. The nearest, {nearest.name}: "
        f"{nearest.reason}. {_way_out(problem)}"
    )


def _way_out(problem: Problem) -> str:
    """The smallest change among those tried that would fit: more devices of the same size, then larger ones."""
    for times in (2, 4, 8):
        count = times * len(problem.cluster)
        if _fits_somewhere(_grown(problem, count, 1.0)):
            return f"It would fit on {count} such devices."
    if not problem.is_local:
        return "Not even on 8 times as many nodes: take smaller models or lengths."
    for factor in (1.5, 2.0, 4.0, 8.0, 16.0):
        if _fits_somewhere(_grown(problem, len(problem.cluster), factor)):
            gib = factor * problem.cluster.device(0).kind.usable_memory_bytes / GIB
            return f"It would fit on devices of {gib:.1f} GiB each."
    return "Neither 8 times as many devices nor 16 times as much memory would be enough: take smaller models or lengths."


def _grown(problem: Problem, devices: int, memory: float) -> Problem:
    """The same problem on so many devices of `memory` times the size; described hardware only has more nodes."""
    if not problem.is_local:
        times = devices // len(problem.cluster)
        return replace(problem, cluster=replace(problem.cluster, racks=problem.cluster.racks * times))
    each = int(problem.cluster.device(0).kind.usable_memory_bytes * memory)
    return replace(problem, cluster=local(devices, each * devices))


def _fits_somewhere(problem: Problem) -> bool:
    plain = (c for c in constructions(problem) if c.applied == problem.applied)
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
