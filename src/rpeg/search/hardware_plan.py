"""Planning on described hardware: the search, and the plans that it found estimated exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rpeg.errors import InputError
from rpeg.ir import Kind
from rpeg.plan import Assignment, Devices, Plan, check
from rpeg.search.anneal import Found, Search
from rpeg.search.baselines.starts import placed, starts
from rpeg.search.branches import walked
from rpeg.search.budget import Budget, Progress
from rpeg.search.constructions import Construction
from rpeg.search.decode import plan_of, shifts_of, with_observers
from rpeg.search.hardware_model import HardwareModel
from rpeg.search.layouts import bundles_of
from rpeg.search.placements import Placement
from rpeg.search.problem import Problem
from rpeg.search.space import space
from rpeg.search.tables import Tables
from rpeg.sim import Draws, Memo, StageCosts, ordered
from rpeg.sim.hardware import check_layouts
from rpeg.transforms.asynchrony import BoundedAsynchrony
from rpeg.transforms.streaming import Streaming

DRAWS = 4
"""Steps of lengths that a search looks at."""

PLACED = 400
"""Annealing steps with which a start is fitted to its placement."""


def search_of(problem: Problem, seed: int, report: Callable[[Progress], None] | None = None) -> Search:
    """With empty tables."""
    model = HardwareModel(problem)
    stages = len(problem.graph.stages)
    room = space(model.kinds, stages)
    draws = Draws(problem.workload, seed)
    return Search(problem, model, room, draws, DRAWS, Tables(model, room, DRAWS), report)


def found_starts(search: Search, seed: int, steps: int = PLACED) -> list[Found]:
    """All starts, each at the best that its placement allows."""
    made = []
    for start in starts(search):
        try:
            made.append(placed(search, start, steps, seed))
        except InputError:
            continue  # no layout at all
    return [found for found in made if found.seconds < 1e300]


def best_of(search: Search, budget: Budget, seed: int, begun: list[Found]) -> list[Found]:
    """The starts and the best of every structure that the chains came to, the best first."""
    order = _diverse(begun)
    count = budget.chains if order else 0
    chains = [(order[chain % len(order)], seed * 7919 + chain) for chain in range(count)]
    found = [*begun, *walked(search, chains, budget.at(len(search.problem.cluster)))]
    return sorted(found, key=lambda one: (one.objective, len(one.structure.applied)))


def _diverse(begun: list[Found]) -> list[Found]:
    """In turn the best that is left, and the best of a structure that none is of yet."""
    left, taken = sorted(begun, key=lambda one: one.objective), list[Found]()
    while left:
        known = {one.structure.graph for one in taken}
        new = next((one for one in left if one.structure.graph not in known), left[0])
        chosen = left[0] if len(taken) % 2 == 0 else new
        taken.append(chosen)
        left = [one for one in left if one is not chosen]
    return taken


def plan_from(search: Search, found: Found, memo: Memo, draws: Draws, *, apart: bool = False) -> Plan:
    """With lane orders and observers; passes `check`. Raises PlanError where it cannot run.

    apart: replicas that share no collective are items of their own, or some that drain at about the same time.
    """
    options = search.options(found)
    bare = plan_of(search.problem, found.structure, search.model, search.space, found.state, options)
    plan = with_observers(search.problem, found.structure, bare)
    if apart:
        plan = replace(plan, assignments=tuple(_apart(plan, a) for a in plan.assignments))
    shifts = shifts_of(found.structure, found.state)
    check_layouts(plan, search.problem.facts)
    return check(ordered(plan, shifts, StageCosts(plan, search.problem.facts, memo), draws))


def _apart(plan: Plan, assignment: Assignment) -> Assignment:
    if not isinstance(assignment.block, Devices) or plan.graph.stage(assignment.stage).kind is Kind.TRAIN:
        return assignment
    return replace(assignment, bundles=bundles_of(assignment))


def construction_of(found: Found, plan: Plan) -> Construction:
    """What a plan is, in the words of reports."""
    blocks = {a.stage: a.block.ids for a in plan.assignments if isinstance(a.block, Devices)}
    applied = found.structure.applied
    staleness = max((t.staleness for t in applied if isinstance(t, BoundedAsynchrony)), default=0)
    streams = [f"{t.chunk} {t.unit}{'s' * (t.chunk != 1)}" for t in applied if isinstance(t, Streaming)]
    name = placement_name(plan)
    return Construction(plan.graph, Placement(name, blocks), applied, staleness, ", ".join(streams))


def placement_name(plan: Plan) -> str:
    """``colocated``, or who is where: ``generate 16 | train 48``."""
    generate = set[int]()
    others = set[int]()
    for stage in plan.graph.stages:
        block = plan.assignment(stage.name).block
        if isinstance(block, Devices):
            (generate if stage.kind is Kind.GENERATE else others).update(block.ids)
    if generate == others:
        blocks = {a.block for a in plan.assignments if isinstance(a.block, Devices)}
        return "colocated" if len(blocks) == 1 else f"meshes on {len(generate)}"
    if generate.isdisjoint(others):
        return f"split {len(generate)}+{len(others)}"
    return f"generate on {len(generate)}, others on {len(others)}, {len(generate & others)} shared"


def distinct(found: list[Found], most: int) -> list[Found]:
    """The best of each structure and placement, the best first."""
    seen: set[object] = set()
    kept: list[Found] = []
    for one in found:
        key = (
            tuple(map(str, one.structure.applied)),
            tuple(one.state.mask.tolist()),
            tuple(one.state.size.tolist()),
        )
        if one.fits and key not in seen and len(kept) < most:
            seen.add(key)
            kept.append(one)
    return kept
