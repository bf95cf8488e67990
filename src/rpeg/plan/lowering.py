"""From stages and edges to the items of a step and the arcs between them.

A stream begins where a generator's out-edge has a chunk: each replica's responses leave in parts, in the order in
which they complete. The finest parts are the *base parts*; they are numbered over all replicas by their place in the
stream, and every item downstream covers a set of them. An item depends on exactly those items of its source that
cover one of the same. How many samples a part holds is fixed here; which ones it holds is known when they complete.

Items of a split stage and of minibatches have *members*: samples that are theirs whatever the order of completion. They
cover all base parts, take their members from them, and wait for what holds one.

Where responses of a generator *migrate*, each replica's item ends with all but its last ones; one more item, on the first
replica, finishes what they hand over. Which samples those are is known when the items end.

Stages that work in rounds (`Graph.rounds`) have an item for each round that a step may take. Later ones have reserved
slots, which take no time where they are not used: a round begins when the selector has judged the one before. What the
selector accepts of a round is a base part too, of as many samples as that are; whatever follows covers these.

Samples travel on arcs. Weights travel as transfer items, unless the consumer's layout coincides with the trainer's:
then both use the same memory and the version is there when the update is. What rests in host memory between its runs
comes and goes by items too (`resting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import gcd

from rpeg.ir import Edge, Graph, Kind, Stage
from rpeg.plan.arcs import arcs
from rpeg.plan.assignment import Assignment
from rpeg.plan.item import ItemKind, Slot
from rpeg.plan.lanes import Lanes, lanes_of
from rpeg.plan.lowered import Copy, Lowered, Task
from rpeg.plan.parts import base_parts
from rpeg.plan.resting import Rest, rest_every, rest_slots, rests
from rpeg.plan.shares import Shares
from rpeg.workload import Workload


@lru_cache(maxsize=64)
def lower(graph: Graph, assignments: tuple[Assignment, ...], workload: Workload) -> Lowered:
    """All items and arcs of one step. Raises PlanError where a chunk cannot be cut from the batch."""
    by_stage = {a.stage: a for a in assignments}
    parts = tuple(base_parts(graph, by_stage, workload))
    copies = tuple(_copies(graph, by_stage))
    shares = Shares(graph, by_stage, workload, parts)
    observers = graph.observers()
    held = lanes_of(assignments)
    tasks: dict[Slot, Task] = {}
    for stage in graph.stages:
        for task in _stage_tasks(shares, held, stage, stage.name in observers):
            tasks[task.slot] = task
    for copy in copies:
        for task in _transfer_tasks(graph, held, copy, by_stage, observers):
            tasks[task.slot] = task
    resting = tuple(rests(graph, by_stage, copies))
    for rest in resting:
        for task in _rest_tasks(graph, held, rest, by_stage, observers):
            tasks[task.slot] = task
    lowered = Lowered(tasks, (), parts, copies, held, resting)
    return replace(lowered, arcs=tuple(dict.fromkeys(arcs(shares, lowered))))


def without_items(graph: Graph, assignments: tuple[Assignment, ...]) -> Lowered:
    """What weights are copied where, and nothing else: enough to know whose memory a stage uses."""
    return Lowered({}, (), (), tuple(_copies(graph, {a.stage: a for a in assignments})))


def coincide(edge: Edge, trainer: Assignment, consumer: Assignment) -> bool:
    """Whether a consumer of weights can use the trainer's own memory: same devices, same layout, no staleness."""
    same = trainer.block == consumer.block and trainer.parallelism.layout == consumer.parallelism.layout
    return edge.src == edge.dst or (edge.delay == 1 and same)


def _stage_tasks(shares: Shares, held: Lanes, stage: Stage, observer: bool) -> Iterator[Task]:
    assignment = shares.by_stage[stage.name]
    gang = stage.kind is not Kind.HOST and shares.replicas(stage) == 1
    for own in shares.of(stage):
        lanes = held.of(assignment, None if gang else own.replica)
        slot = Slot(ItemKind.RUN, stage.name, own.part, own.replica)
        yield Task(
            slot,
            lanes,
            stage.every,
            0,
            observer,
            own.covers,
            own.share,
            own.members,
            own.makes,
            own.hands_over,
            own.finishes,
        )


def _copies(graph: Graph, by_stage: Mapping[str, Assignment]) -> Iterator[Copy]:
    found: dict[tuple[object, ...], list[Edge]] = {}
    for edge in graph.edges:
        if edge.model is None or coincide(edge, by_stage[edge.src], by_stage[edge.dst]):
            continue
        consumer = by_stage[edge.dst]
        key = (edge.model, consumer.block, consumer.parallelism.layout, edge.delay, edge.freshness)
        found.setdefault(key, []).append(edge)
    for edges in found.values():
        first = edges[0]
        assert first.model is not None
        stages = tuple(edge.dst for edge in edges)
        yield Copy(first.name, first.model, first.src, stages, first.delay, first.freshness)


def _transfer_tasks(
    graph: Graph, held: Lanes, copy: Copy, by_stage: Mapping[str, Assignment], observers: frozenset[str]
) -> Iterator[Task]:
    consumer = by_stage[copy.stages[0]]
    stage = graph.stage(copy.stages[0])
    every = gcd(*(graph.stage(name).every for name in copy.stages))
    observer = any(name in observers for name in copy.stages)
    replicas = consumer.replicas(stage.kind)
    for replica in range(replicas):
        lanes = held.of(consumer, None if replicas == 1 else replica)
        slot = Slot(ItemKind.TRANSFER, copy.name, 0, replica)
        yield Task(slot, lanes, every, copy.first_step, observer)


def _rest_tasks(
    graph: Graph, held: Lanes, rest: Rest, by_stage: Mapping[str, Assignment], observers: frozenset[str]
) -> Iterator[Task]:
    """The reload and the offload of each replica."""
    assignment, every = by_stage[rest.stage], rest_every(graph, rest)
    observer = any(name in observers for name in rest.stages)
    replicas = assignment.replicas(graph.stage(rest.stage).kind)
    for replica in range(replicas):
        lanes = held.of(assignment, None if replicas == 1 else replica)
        for slot in rest_slots(rest, replica):
            yield Task(slot, lanes, every, 0, observer)
