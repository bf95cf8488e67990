"""A plan with its long responses migrated, where that is faster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rpeg.errors import GraphError, PlanError
from rpeg.ir import Kind, Stage, Unit
from rpeg.plan import ItemKind, Lowered, Plan, check, lower, stream_chunks
from rpeg.search.candidate import Candidate
from rpeg.search.problem import Problem
from rpeg.sim import Draws, Memo, StageCosts, estimate, ordered
from rpeg.transforms.migration import Migration

EACH = (1, 2, 4)
"""Units (responses, or groups where they flow on by group) of each replica that are tried."""


def with_migration(
    candidate: Candidate, problem: Problem, memo: Memo, draws: Draws, least: float
) -> Candidate | None:
    """The fastest over as many steps; None where none saves a share of `least` of the step."""
    found = [
        made
        for transform in _transforms(candidate.plan)
        if (made := _migrated(candidate, transform, problem, memo, draws)) is not None
    ]
    best = min(found, key=lambda c: c.estimate.step.mean_seconds, default=None)
    limit = candidate.estimate.step.mean_seconds * (1 - least)
    return best if best is not None and best.estimate.step.mean_seconds < limit else None


def _transforms(plan: Plan) -> Iterator[Migration]:
    """Where somebody has a use for devices that are free earlier: else the responses only wait for each other."""
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    for stage in plan.graph.stages:
        if stage.kind is Kind.GENERATE and not stage.migrates and _frees_a_scorer(lowered, stage):
            replicas = plan.assignment(stage.name).replicas(stage.kind)
            yield from (Migration(stage.name, n * replicas * _unit(plan, stage)) for n in EACH)


def _frees_a_scorer(lowered: Lowered, stage: Stage) -> bool:
    """Whether an item that takes samples runs on devices of replicas other than the first alone."""
    free = {lane for task in lowered.tasks_of(stage.name) if task.slot.replica for lane in task.lanes}
    takers = (task for task in lowered.tasks.values() if task.covers and task.slot.name != stage.name)
    return any(set(task.lanes) <= free for task in takers)


def _unit(plan: Plan, stage: Stage) -> int:
    groups = any(chunk.unit is Unit.GROUP for chunk in stream_chunks(plan.graph, stage.name))
    return plan.workload.samples_per_prompt if groups else 1


def _migrated(
    candidate: Candidate, transform: Migration, problem: Problem, memo: Memo, draws: Draws
) -> Candidate | None:
    """None where it cannot run, or does not fit."""
    plan, of = candidate.plan, candidate.construction
    shifts = {turn.name: shift for turn, shift in plan.shifts.items() if turn.kind is ItemKind.RUN}
    try:
        graph = transform.apply(plan.graph)
        bare = replace(plan, graph=graph, order=(), applied=(*plan.applied, str(transform)))
        made = check(ordered(bare, shifts, StageCosts(bare, problem.facts, memo), draws))
    except (GraphError, PlanError):
        return None
    found = estimate(made, problem.facts, steps=candidate.estimate.step.steps, memo=memo, draws=draws)
    if not found.fits:
        return None
    bounds = replace(found.bounds, work=candidate.estimate.bounds.work)
    construction = replace(of, graph=graph, applied=(*of.applied, transform), migrates=transform.responses)
    return Candidate(construction, made, replace(found, bounds=bounds))
