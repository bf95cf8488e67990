"""`searched`: the plans of a problem on described hardware, found by search, ranked by exact estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from rpeg.errors import PlanError
from rpeg.ir import Stage
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
from rpeg.search.infeasible import Infeasible
from rpeg.search.migrations import with_migration
from rpeg.search.problem import Problem
from rpeg.sim import Draws, Memo, estimate

FINAL_STEPS, FINALISTS = 10, 5
"""Steady steps over which plans are estimated in the end, and how many of different kinds are."""

APART = 2
"""Plans that are estimated once more with a generator's replicas as items of their own."""

EQUAL = 0.005
"""Plans that differ by less are as fast as each other: then the one with the fewest transforms leads."""


def searched(
    problem: Problem,
    *,
    seed: int = 0,
    budget: Budget | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Ranked:
    """The best plans of different kinds. The same for the same arguments.

    Raises Infeasible where none fits. report: is told how the search goes on.
    """
    search = search_of(problem, seed, report)
    begun = found_starts(search, seed)
    found = best_of(search, budget or Budget(), seed, begun)
    if not any(one.fits for one in found):
        raise Infeasible(problem, "the search", "none of the plans that it came to fits")
    memo: Memo = {}
    finals = distinct(found, FINALISTS)
    finals += [one for one in found if _is_plain(one) and one not in finals][:1]
    made = [c for one in finals if (c := _candidate(search, one, memo)) is not None]
    if not made:
        raise Infeasible(problem, "the search", "none of the plans that it came to fits")
    leading = [c for one in finals[:APART] if (c := _candidate(search, one, memo, apart=True)) is not None]
    draws = Draws(problem.workload, search.draws.seed)
    moved = [m for c in leading if (m := with_migration(c, problem, memo, draws, EQUAL)) is not None]
    ranked = sorted((*made, *leading, *moved), key=_promised)
    return Ranked(tuple(_simplest_first(_one_each(ranked))), tuple(_left_out(begun)))


def _is_plain(found: Found) -> bool:
    """All stages on one block, of the graph as it is: what most people run, and the first to compare with."""
    blocks = {
        mask for mask, kind in zip(found.state.mask.tolist(), found.structure.shape.kind, strict=True) if kind
    }
    return found.fits and not found.structure.applied and len(blocks) == 1


def _candidate(search: Search, found: Found, memo: Memo, *, apart: bool = False) -> Candidate | None:
    """None where the plan does not fit exactly, or is none. apart: replicas that drain early free their devices."""
    problem = search.problem
    draws = Draws(problem.workload, search.draws.seed)
    try:
        plan = plan_from(search, found, memo, draws, apart=apart)
    except PlanError:
        return None
    bound = _device_seconds(search)
    found_estimate = estimate(
        plan, problem.facts, steps=FINAL_STEPS, memo=memo, draws=draws, device_seconds=bound
    )
    if not found_estimate.fits:
        return None
    return Candidate(construction_of(found, plan), plan, found_estimate)


def _promised(candidate: Candidate) -> tuple[float, int]:
    return candidate.estimate.step.mean_seconds, len(candidate.plan.applied)


def _one_each(ranked: list[Candidate]) -> list[Candidate]:
    """Of plans that are told apart by nothing that a report says in a line the first."""
    first: dict[object, Candidate] = {}
    for candidate in ranked:
        first.setdefault((candidate.name, candidate.changes), candidate)
    return list(first.values())


def _simplest_first(candidates: list[Candidate]) -> Iterator[Candidate]:
    limit = candidates[0].estimate.step.mean_seconds * (1 + EQUAL)
    equals = [c for c in candidates if c.estimate.step.mean_seconds <= limit]
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
    for placed, seconds in zip(search.tables.placed, search.tables.rows.least.tolist(), strict=False):
        if placed.devices and seconds:
            key = placed.profile.stage.kind, placed.profile.stage.calls
            least[key] = min(seconds * placed.devices, least.get(key, math.inf))
    return lambda stage: least.get((stage.kind, stage.calls), 0.0)
