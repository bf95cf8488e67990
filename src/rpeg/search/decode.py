"""From a state of the search to the plan that it stands for."""

from __future__ import annotations

from dataclasses import replace

from rpeg.ir import Graph, Kind
from rpeg.plan import Assignment, Devices, Host, Plan, lower
from rpeg.plan.resting import owners
from rpeg.search.core.layout import State
from rpeg.search.model import CostModel, Option
from rpeg.search.problem import Problem
from rpeg.search.space import Space, blocks
from rpeg.search.structure import Structure

OFFLOADS = ("none", "optimizer", "all")


def assignments(
    structure: Structure, model: CostModel, space: Space, state: State, options: list[Option]
) -> tuple[Assignment, ...]:
    """Of the stages of the bare graph, in its order. options: of each stage, in the order of the structure."""
    ids = blocks(space, model.kinds, state)
    found = []
    for stage in structure.bare.stages:
        place = structure.index[stage.name]
        if stage.kind is Kind.HOST:
            found.append(Assignment(stage.name, Host(0)))
            continue
        option = options[place]
        found.append(
            Assignment(
                stage.name,
                Devices(ids[place]),
                option.parallelism,
                option.microbatch,
                recompute=option.recompute,
                offload=OFFLOADS[int(state.offload[place])],
                bundles=1,
            )
        )
    return tuple(found)


def plan_of(
    problem: Problem,
    structure: Structure,
    model: CostModel,
    space: Space,
    state: State,
    options: list[Option],
) -> Plan:
    """Without lane orders and observers."""
    found = assignments(structure, model, space, state, options)
    applied = tuple(map(str, (*problem.applied, *structure.applied)))
    return Plan(
        structure.bare,
        problem.cluster,
        problem.workload,
        own_rests(structure.bare, found, problem),
        (),
        applied,
    )


def own_rests(graph: Graph, assigned: tuple[Assignment, ...], problem: Problem) -> tuple[Assignment, ...]:
    """Who has no memory of its own to offload says nothing: whose it uses decides."""
    lowered = lower(graph, assigned, problem.workload)
    holders = {rest.stage for rest in lowered.rests}
    kept = []
    for a in assigned:
        stage = graph.stage(a.stage)
        lent = bool(owners(graph, stage, lowered.copies))
        frozen = any(graph.trainer(model) is None for model in stage.models)
        mine = a.stage in holders and (
            stage.kind is Kind.TRAIN or frozen or not lent or stage.kind is Kind.GENERATE
        )
        own = any(copy.stages[0] == a.stage for copy in lowered.copies)
        kept.append(a if mine or (own and a.stage in holders) else replace(a, offload="none"))
    return tuple(kept)


def shifts_of(structure: Structure, state: State) -> dict[str, int]:
    """By stage."""
    return {name: int(state.shift[i]) for i, name in enumerate(structure.names)}


def with_observers(problem: Problem, structure: Structure, plan: Plan) -> Plan:
    """Observers on the devices of their model's trainer, as generators with the layout of the first one."""
    aside = structure.graph.observers()
    if not aside:
        return plan
    generator = next(s for s in structure.bare.stages if s.kind is Kind.GENERATE)
    own = plan.assignment(generator.name)
    extra = []
    for stage in structure.graph.stages:
        if stage.name in aside:
            extra.append(replace(own, stage=stage.name) if stage.models else Assignment(stage.name, Host(0)))
    return replace(plan, graph=structure.graph, assignments=(*plan.assignments, *extra))
