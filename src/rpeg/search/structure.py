"""`Structure`: a graph under a chain of transforms, as arrays for the compiled search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rpeg.errors import GraphError, PlanError
from rpeg.ir import Edge, Graph, Kind
from rpeg.plan import Assignment, Devices, Host, Item, ItemKind, Lowered, Plan, Slot, lower
from rpeg.plan.check import own_scores_are_of_current_weights, parts_are_supported
from rpeg.search.core.layout import GENERATE, HOST, INFERENCE, SLOTS, TRAIN, Shape
from rpeg.search.model import Profile
from rpeg.search.problem import Problem
from rpeg.sim import Batch, Completions, Draws
from rpeg.sim.onestep import one_step
from rpeg.transforms import Transform

_KINDS = {Kind.HOST: HOST, Kind.GENERATE: GENERATE, Kind.INFERENCE: INFERENCE, Kind.TRAIN: TRAIN}


@dataclass(frozen=True)
class Structure:
    """graph: with observers, applied to it the transforms. bare: without observers, which the search leaves out.

    names: the stages of `bare` in the order of the arrays. profiles: of each. shape: its rows of `profile` are not set.
    """

    graph: Graph
    applied: tuple[Transform, ...]
    bare: Graph
    names: tuple[str, ...]
    profiles: tuple[Profile, ...]
    shape: Shape

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The place of each stage."""
        return {name: i for i, name in enumerate(self.names)}


def structure(
    problem: Problem, graph: Graph, applied: tuple[Transform, ...], draws: Draws, count: int
) -> Structure:
    """count: steps drawn. Raises GraphError or PlanError where no plan could have this structure."""
    if graph.selector is not None:
        raise GraphError(f"{graph.name} works in rounds, which the search does not know")
    bare = without_observers(graph)
    order = tuple(sorted(stage.name for stage in bare.stages))
    if any(stage.kind not in _KINDS or len(stage.models) > SLOTS for stage in bare.stages):
        raise GraphError(f"{graph.name} has stages that the search does not know")
    assigned = tuple(
        Assignment(s.name, Devices((i,)) if s.models else Host(0), bundles=1 if s.models else 0)
        for i, s in enumerate(bare.stages)
    )
    plan = Plan(bare, problem.cluster, problem.workload, assigned)
    for rule in (parts_are_supported, own_scores_are_of_current_weights):
        for sentence in rule(plan):
            raise PlanError(sentence)
    lowered = lower(bare, assigned, problem.workload)
    profiles = _profiles(plan, lowered, order, draws, count)
    return Structure(graph, applied, bare, order, profiles, _shape(bare, lowered, order))


def without_observers(graph: Graph) -> Graph:
    """What the stream of samples does not pass is left out: evaluation."""
    aside = graph.observers()
    stages = tuple(s for s in graph.stages if s.name not in aside)
    edges = tuple(e for e in graph.edges if e.dst not in aside and e.src not in aside)
    return replace(graph, stages=stages, edges=edges)


class _ByLength:
    """Costs by which samples complete in the order of their lengths."""

    dispatch_seconds = 0.0

    def duration_seconds(self, item: Item, batch: Batch) -> float:
        return 0.0

    def generation(self, item: Item, batch: Batch) -> Completions:
        return Completions(
            float(max(batch.response_lengths, default=0)), tuple(map(float, batch.response_lengths))
        )

    def memory_bytes(self, item: Item, lane: str) -> int:
        return 0


def _profiles(
    plan: Plan, lowered: Lowered, order: tuple[str, ...], draws: Draws, count: int
) -> tuple[Profile, ...]:
    drawn = [one_step(plan, lowered, _ByLength(), draws, step) for step in range(count)]
    graph = plan.graph
    found: dict[str, Profile] = {}
    for stage in sorted(graph.stages, key=lambda s: s.kind is not Kind.TRAIN):  # trainers first
        tasks = sorted(lowered.tasks_of(stage.name), key=lambda task: task.slot)
        batches = tuple(tuple(one.batches[task.slot] for task in tasks) for one in drawn)
        bases: tuple[tuple[object, ...], ...] = ()
        if stage.kind is Kind.GENERATE:
            bases = tuple(tuple(lowered.parts[i] for i in task.covers) for task in tasks)
        trainers = {t.name: None for m in stage.models if (t := graph.trainer(m)) is not None and t != stage}
        known = tuple(found[name] for name in trainers)
        found[stage.name] = Profile(graph, stage, batches, bases, known)  # type: ignore[arg-type]
    return tuple(found[name] for name in order)


def _shape(graph: Graph, lowered: Lowered, order: tuple[str, ...]) -> Shape:
    place = {name: i for i, name in enumerate(order)}
    slots = [sorted(task.slot for task in lowered.tasks_of(name)) for name in order]
    first = np.cumsum([0, *(len(own) for own in slots)])
    item = {slot: i for i, slot in enumerate(slot for own in slots for slot in own)}
    edges = sorted(_weights(graph), key=lambda edge: edge.name)
    models = [model.name for model in graph.models]
    data = {(place[e.src], place[e.dst]) for e in graph.edges if e.model is None}
    return Shape(
        kind=_ints(_KINDS[graph.stage(name).kind] for name in order),
        first=first[:-1].astype(np.int64),
        parts=_ints(len(own) for own in slots),
        arcs=_table(_arcs(lowered, item), 3),
        model=_table((_models(graph, name, models) for name in order), SLOTS),
        feed=_table((_feeds(graph, name, edges) for name in order), SLOTS),
        edges=_table(_edges(graph, edges, place, models), 6),
        rests=_ints(place[name] for name in sorted(order, key=lambda name: f"{name}:")),
        profile=np.zeros(len(order), np.int64),
        bases=_ints(place[part.stage] for part in lowered.parts),
        data=_table(sorted(data), 2),
    )


def _weights(graph: Graph) -> list[Edge]:
    return [edge for edge in graph.edges if edge.model is not None and edge.src != edge.dst]


def _arcs(lowered: Lowered, item: Mapping[Slot, int]) -> list[tuple[int, int, int]]:
    found = [
        (item[arc.src], item[arc.dst], -1 if arc.part is None else arc.part)
        for arc in lowered.arcs
        if arc.src.kind is ItemKind.RUN and arc.dst.kind is ItemKind.RUN and arc.delay == 0
    ]
    return list(dict.fromkeys(found))


def _models(graph: Graph, name: str, models: list[str]) -> list[int]:
    called = [models.index(model) for model in graph.stage(name).models]
    return called + [-1] * (SLOTS - len(called))


def _feeds(graph: Graph, name: str, edges: list[Edge]) -> list[int]:
    found = []
    for model in graph.stage(name).models:
        trainer = graph.trainer(model)
        if trainer is None:
            found.append(-1)
        elif trainer.name == name:
            found.append(-2)
        else:
            found.append(next(i for i, e in enumerate(edges) if e.dst == name and e.model == model))
    return found + [-1] * (SLOTS - len(found))


def _edges(
    graph: Graph, edges: list[Edge], place: Mapping[str, int], models: list[str]
) -> list[tuple[int, ...]]:
    classes: dict[object, int] = {}
    found: list[tuple[int, ...]] = []
    for e in edges:
        assert e.model is not None
        group = classes.setdefault((e.model, e.delay, e.freshness), len(classes))
        ends = place[e.src], place[e.dst]
        found.append((*ends, e.delay, group, graph.edges.index(e), models.index(e.model)))
    return found


def _ints(values: object) -> np.typing.NDArray[np.int64]:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]


def _table(rows: object, width: int) -> np.typing.NDArray[np.int64]:
    return np.array(list(rows), dtype=np.int64).reshape(-1, width)  # type: ignore[call-overload]
