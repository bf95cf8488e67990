"""`searched`: the plans of a problem on described hardware, found by search, ranked by exact estimates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from rpeg.cluster import Cluster
from rpeg.errors import InfeasibleError, InputError, PlanError
from rpeg.ir import Kind, Stage
from rpeg.plan import Plan, lower
from rpeg.search.anneal import Found, Search
from rpeg.search.budget import Budget, Progress
from rpeg.search.candidate import Candidate, Misfit, Ranked
from rpeg.search.hardware_plan import (
    best_of,
    construction_of,
    distinct,
    found_starts,
    plan_from,
    search_of,
)
from rpeg.search.problem import Problem
from rpeg.sim import DeviceMemory, Draws, Estimate, Memo, device_memory, estimate, stages_in
from rpeg.units import GIB

FINAL_STEPS, FINALISTS = 10, 6
"""Steady steps over which plans are estimated in the end, and how many of different kinds are."""

EQUAL = 0.005
"""Plans that differ by less are as fast as each other: then the one with the fewest transforms leads."""


def searched(
    problem: Problem,
    *,
    seed: int = 0,
    budget: Budget | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Ranked:
    """The best plans of different kinds, and the starts that they had to beat. The same for the same arguments.

    Raises InfeasibleError where none fits: stage, phase, how many GiB are missing, and the smallest change that would
    fit. report: is told how the search goes on.
    """
    search = search_of(problem, seed, report)
    begun = found_starts(search, seed)
    found = best_of(search, budget or Budget(), seed, begun)
    if not any(one.fits for one in found):
        raise InfeasibleError(_infeasible(search, found, seed))
    memo: Memo = {}
    finals = distinct(found, FINALISTS)
    named = [one for one in distinct(sorted(begun, key=lambda one: one.objective), 3) if one not in finals]
    made = [c for one in (*finals, *named) if (c := _candidate(search, one, memo)) is not None]
    if not made:
        raise InfeasibleError(_infeasible(search, found, seed))
    ranked = sorted(made, key=lambda c: (_promised(c.estimate), len(c.plan.applied)))
    return Ranked(tuple(_simplest_first(ranked)), tuple(_left_out(begun)))


def _candidate(search: Search, found: Found, memo: Memo) -> Candidate | None:
    """None where the plan does not fit exactly, or is none."""
    problem = search.problem
    draws = Draws(problem.workload, search.draws.seed)
    try:
        plan = plan_from(search, found, memo, draws)
    except PlanError:
        return None
    bound = _device_seconds(search)
    found_estimate = estimate(
        plan, problem.facts, steps=FINAL_STEPS, memo=memo, draws=draws, device_seconds=bound
    )
    if not found_estimate.fits:
        return None
    return Candidate(construction_of(found, plan), plan, found_estimate)


def _promised(found: Estimate) -> float:
    return found.step.mean_seconds


def _simplest_first(candidates: list[Candidate]) -> Iterator[Candidate]:
    limit = _promised(candidates[0].estimate) * (1 + EQUAL)
    equals = [c for c in candidates if _promised(c.estimate) <= limit]
    leader = min(equals, key=lambda c: len(c.plan.applied))
    yield leader
    yield from (c for c in candidates if c is not leader)


def _left_out(begun: list[Found]) -> Iterator[Misfit]:
    for one in begun:
        if not one.fits:
            yield Misfit(
                one.name, f"lacks {one.short:.0%} of a device's memory, however it is run", one.short
            )


def _device_seconds(search: Search) -> Callable[[Stage], float]:
    """The least seconds × devices of a stage among all the options that the search has looked at."""
    least: dict[object, float] = {}
    rows, draws = search.tables.rows, search.count
    for row, placed in enumerate(search.tables.placed):
        stage = placed.profile.stage
        if placed.devices == 0:
            continue
        key, items = (stage.kind, stage.calls), placed.profile.items
        total = 0.0
        if stage.kind is Kind.GENERATE:
            known = [int(at) for at in rows.levels[row] if at >= 0]
            if not known:
                continue
            total = min(float(rows.seconds[at : at + items * draws].sum()) for at in known)
        else:
            for slot in range(len(stage.models)):
                known = [int(at) for at in rows.core[row, slot] if at >= 0]
                total += min(float(rows.seconds[at : at + items * draws].sum()) for at in known)
        work = total / draws * placed.devices
        least[key] = min(work, least.get(key, work))
    return lambda stage: least.get((stage.kind, stage.calls), 0.0)


def _infeasible(search: Search, found: list[Found], seed: int) -> str:
    problem = search.problem
    name = f"no plan for {problem.graph.name} fits on {problem.cluster.name}"
    plans = ((one, plan) for one in found if (plan := _unfit(search, one)) is not None)
    first = next(plans, None)
    if first is None:
        return (
            f"{name}: no stage layout divides the batch of {problem.workload.samples} samples and its models"
        )
    _, plan = first
    memory = device_memory(plan, lower(plan.graph, plan.assignments, plan.workload), problem.facts)
    tightest = max(memory, key=lambda m: m.short_bytes / m.capacity_bytes)
    return f"{name}. The nearest: {_lack(plan, tightest)}. {_way_out(problem, seed)}"


def _unfit(search: Search, one: Found) -> Plan | None:
    try:
        return plan_from(search, one, {}, Draws(search.problem.workload, search.draws.seed))
    except (PlanError, InputError):
        return None


def _lack(plan: Plan, tightest: DeviceMemory) -> str:
    phase, stages = tightest.peak.phase, stages_in(plan, tightest, tightest.peak.phase)
    return (
        f"{tightest.name} lacks {tightest.short_bytes / GIB:.1f} GiB in phase {phase} of {', '.join(stages)} "
        f"({tightest.peak.bytes / GIB:.1f} needed, {tightest.capacity_bytes / GIB:.1f} there)"
    )


def _way_out(problem: Problem, seed: int) -> str:
    """The smallest change, of those tried, under which a search finds a plan."""
    for words, changed in _changes(problem):
        begun = found_starts(search_of(changed, seed), seed)
        if any(one.fits for one in begun):
            return f"It would fit {words}."
    return "It would not fit with 8 times as many nodes either: take smaller models or shorter samples."


def _changes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """From the smallest: samples one by one, then more nodes."""
    if problem.microbatch > 1:
        yield "with micro-batches of 1", replace(problem, microbatch=1)
    nodes = len(problem.cluster.nodes)
    counts = sorted({nodes + 1, nodes + 2, nodes * 3 // 2, nodes * 2, nodes * 4, nodes * 8} - {nodes})
    for count in counts:
        yield f"on {count} nodes", replace(problem, cluster=_with_nodes(problem.cluster, count))


def _with_nodes(cluster: Cluster, count: int) -> Cluster:
    """The same cluster with so many nodes, the added ones like its last."""
    extra = count - len(cluster.nodes)
    last = cluster.racks[-1]
    racks = (*cluster.racks[:-1], replace(last, nodes=last.nodes + (last.nodes[-1],) * extra))
    return replace(cluster, name=f"{count} nodes of {cluster.name.split(' × ')[0]}", racks=racks)
