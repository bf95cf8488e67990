"""From stages and edges to the items of a step and the arcs between them.

A stream begins where a generator's out-edge has a chunk: each replica's responses leave in parts, in the order in
which they complete. The finest parts are the *base parts*; they are numbered over all replicas by their place in the
stream, and every item downstream covers a set of them. An item depends on exactly those items of its source that
cover one of the same. How many samples a part holds is fixed here; which ones it holds is known when they complete.

Samples travel on arcs. Weights travel as transfer items, unless the consumer's layout coincides with the trainer's:
then both use the same memory and the version is there when the update is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from rpeg.errors import PlanError
from rpeg.ir import Edge, Freshness, Graph, Kind, Stage, Unit
from rpeg.plan.assignment import Assignment
from rpeg.plan.item import ItemKind, Slot
from rpeg.workload import Workload


@dataclass(frozen=True, slots=True)
class BasePart:
    """`samples` responses of one replica of a generator: the `position`-th that leaves it."""

    stage: str
    replica: int
    position: int
    samples: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Weights of a model held for consumers that cannot share the trainer's.

    name: the edge that its transfers are named by (the first of those it serves).
    """

    name: str
    model: str
    trainer: str
    stages: tuple[str, ...]
    delay: int
    freshness: Freshness

    @property
    def first_step(self) -> int:
        """The first step before which it may receive a version other than the initial one."""
        return self.delay if self.freshness is Freshness.EXACT else 1


@dataclass(frozen=True, slots=True)
class Task:
    """A slot with what it holds and covers.

    covers: base parts, by number; empty where a stage is not part of the stream.
    share: (which, of how many) shares of what it covers, for the replicas of a whole batch.
    """

    slot: Slot
    lanes: tuple[str, ...]
    every: int = 1
    first_step: int = 0
    observer: bool = False
    covers: tuple[int, ...] = ()
    share: tuple[int, int] = (0, 1)

    def fires(self, step: int, steps: int) -> bool:
        """Whether it runs at `step` of a run of `steps`; observers run once more after the last."""
        if step == steps:
            return self.observer and step >= self.first_step
        return self.first_step <= step < steps and step % self.every == 0


@dataclass(frozen=True, slots=True)
class Arc:
    """`dst` at step t waits for `src` at step t - delay; at `part` of it where that is given, else at its end.

    why: the datum, or `order` for a read that must precede an overwriting.
    """

    src: Slot
    dst: Slot
    delay: int
    why: str
    part: int | None = None


@dataclass(frozen=True)
class Lowered:
    """The items of a step, the arcs between them, the base parts and the copies of weights."""

    tasks: Mapping[Slot, Task]
    arcs: tuple[Arc, ...]
    parts: tuple[BasePart, ...]
    copies: tuple[Copy, ...]

    @cached_property
    def arcs_into(self) -> Mapping[Slot, tuple[Arc, ...]]:
        into: dict[Slot, list[Arc]] = {slot: [] for slot in self.tasks}
        for arc in self.arcs:
            into[arc.dst].append(arc)
        return {slot: tuple(arcs) for slot, arcs in into.items()}

    @cached_property
    def lanes(self) -> Mapping[str, tuple[Slot, ...]]:
        """The slots that each lane must run."""
        lanes: dict[str, list[Slot]] = {}
        for task in self.tasks.values():
            for lane in task.lanes:
                lanes.setdefault(lane, []).append(task.slot)
        return {lane: tuple(slots) for lane, slots in lanes.items()}

    def tasks_of(self, stage: str) -> tuple[Task, ...]:
        return tuple(t for s, t in self.tasks.items() if s.kind is ItemKind.RUN and s.name == stage)

    def parts_of(self, stage: str, replica: int) -> tuple[int, ...]:
        """The base parts of one replica of a generator, in the order in which they leave."""
        return tuple(i for i, p in enumerate(self.parts) if p.stage == stage and p.replica == replica)

    def copy_for(self, stage: str, model: str) -> Copy | None:
        """The copy that a stage reads a model from; None where it shares the trainer's or the model is frozen."""
        return next((c for c in self.copies if c.model == model and stage in c.stages), None)


def prompts_of_replica(prompts: int, replica: int, replicas: int) -> range:
    """The prompts, by index in the step, that a generator's replica answers: contiguous, sizes differ by at most 1."""
    return range(prompts * replica // replicas, prompts * (replica + 1) // replicas)


def lower(graph: Graph, assignments: tuple[Assignment, ...], workload: Workload) -> Lowered:
    """All items and arcs of one step. Raises PlanError where a chunk cannot be cut from the batch."""
    by_stage = {a.stage: a for a in assignments}
    parts = tuple(_base_parts(graph, by_stage, workload))
    copies = tuple(_copies(graph, by_stage))
    observers = graph.observers()
    tasks: dict[Slot, Task] = {}
    for stage in graph.stages:
        for task in _stage_tasks(graph, stage, by_stage[stage.name], parts, stage.name in observers):
            tasks[task.slot] = task
    for copy in copies:
        for task in _transfer_tasks(graph, copy, by_stage, observers):
            tasks[task.slot] = task
    lowered = Lowered(tasks, (), parts, copies)
    return Lowered(tasks, tuple(dict.fromkeys(_arcs(graph, lowered))), parts, copies)


def coincide(edge: Edge, trainer: Assignment, consumer: Assignment) -> bool:
    """Whether a consumer of weights can use the trainer's own memory: same devices, same layout, no staleness."""
    same = trainer.block == consumer.block and trainer.parallelism.layout == consumer.parallelism.layout
    return edge.src == edge.dst or (edge.delay == 1 and same)


def _samples_per_unit(unit: Unit, workload: Workload) -> int:
    return workload.samples_per_prompt if unit is Unit.GROUP else 1


def _base_parts(graph: Graph, by_stage: Mapping[str, Assignment], workload: Workload) -> Iterator[BasePart]:
    for stage in graph.stages:
        if stage.kind is not Kind.GENERATE or not graph.out_of(stage.name):
            continue
        chunks = {edge.chunk for edge in graph.out_of(stage.name) if edge.chunk is not None}
        units = {chunk.unit for chunk in chunks}
        if len(units) > 1:
            raise PlanError(
                f"stage {stage.name} streams in {' and '.join(sorted(units))} at once; choose one unit"
            )
        replicas = by_stage[stage.name].replicas(stage.kind)
        streams = []
        for replica in range(replicas):
            prompts = len(prompts_of_replica(workload.prompts, replica, replicas))
            samples = prompts * workload.samples_per_prompt
            size = samples
            if chunks:
                count = gcd(*(chunk.count for chunk in chunks))
                size = count * _samples_per_unit(units.copy().pop(), workload)
            starts = range(0, samples, size) if samples else range(0)
            streams.append(
                [BasePart(stage.name, replica, i, min(size, samples - s)) for i, s in enumerate(starts)]
            )
        # Replicas advance together, so parts merge by their place in the stream.
        yield from sorted((p for s in streams for p in s), key=lambda p: (p.position, p.replica))


def _stage_tasks(
    graph: Graph, stage: Stage, assignment: Assignment, parts: tuple[BasePart, ...], observer: bool
) -> Iterator[Task]:
    replicas = assignment.replicas(stage.kind)
    covers = _covers(graph, stage, parts, replicas)
    gang = assignment.all_lanes() if stage.kind is not Kind.HOST and replicas == 1 else None
    for (part, replica), (covered, share) in covers.items():
        lanes = gang or assignment.lanes(replica)
        slot = Slot(ItemKind.RUN, stage.name, part, replica)
        yield Task(slot, lanes, stage.every, 0, observer, covered, share)


def _covers(
    graph: Graph, stage: Stage, parts: tuple[BasePart, ...], replicas: int
) -> dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, int]]]:
    """(part, replica) → (base parts, share)."""
    if stage.kind is Kind.GENERATE:
        own = {
            r: tuple(i for i, p in enumerate(parts) if (p.stage, p.replica) == (stage.name, r))
            for r in range(replicas)
        }
        return {(0, r): (own[r], (r, replicas)) for r in own}
    chunks = [edge.chunk for edge in graph.data_into(stage.name)]
    everything = tuple(range(len(parts))) if chunks else ()
    chunk = chunks[0] if chunks else None
    if chunk is None:
        # Host work on a whole batch is one item; other replicas each take a share.
        count = 1 if stage.kind is Kind.HOST else replicas
        return {(0, r): (everything, (r, count)) for r in range(count)}
    merged = _merge(graph, parts, chunk.count)
    return {(i, i % replicas): (covered, (0, 1)) for i, covered in enumerate(merged)}


def _merge(graph: Graph, parts: tuple[BasePart, ...], count: int) -> list[tuple[int, ...]]:
    """Base parts of each stream merged to chunks of `count` units, ordered by when they are complete."""
    merged: list[tuple[int, ...]] = []
    for stream in dict.fromkeys((p.stage, p.replica) for p in parts):
        own = [i for i, p in enumerate(parts) if (p.stage, p.replica) == stream]
        chunks = {e.chunk.count for e in graph.out_of(stream[0]) if e.chunk is not None}
        size = count // gcd(*chunks)
        merged += [tuple(own[s : s + size]) for s in range(0, len(own), size)]
    return sorted(merged, key=lambda covered: covered[-1])


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
    graph: Graph, copy: Copy, by_stage: Mapping[str, Assignment], observers: frozenset[str]
) -> Iterator[Task]:
    consumer = by_stage[copy.stages[0]]
    stage = graph.stage(copy.stages[0])
    every = gcd(*(graph.stage(name).every for name in copy.stages))
    observer = any(name in observers for name in copy.stages)
    replicas = consumer.replicas(stage.kind)
    for replica in range(replicas):
        lanes = consumer.all_lanes() if replicas == 1 else consumer.lanes(replica)
        slot = Slot(ItemKind.TRANSFER, copy.name, 0, replica)
        yield Task(slot, lanes, every, copy.first_step, observer)


def _arcs(graph: Graph, lowered: Lowered) -> Iterator[Arc]:
    for edge in graph.edges:
        if edge.model is None:
            yield from _data_arcs(graph, edge, lowered)
        else:
            yield from _weights_arcs(edge, lowered)


def _data_arcs(graph: Graph, edge: Edge, lowered: Lowered) -> Iterator[Arc]:
    streams = graph.stage(edge.src).kind is Kind.GENERATE
    for src in lowered.tasks_of(edge.src):
        for dst in lowered.tasks_of(edge.dst):
            shared = set(src.covers) & set(dst.covers)
            if src.covers and dst.covers and not shared:
                continue
            if streams and edge.chunk is not None:
                yield from (Arc(src.slot, dst.slot, edge.delay, edge.data, part) for part in sorted(shared))
            else:
                yield Arc(src.slot, dst.slot, edge.delay, edge.data)


def _weights_arcs(edge: Edge, lowered: Lowered) -> Iterator[Arc]:
    trainer = lowered.tasks_of(edge.src)
    consumers = lowered.tasks_of(edge.dst)
    assert edge.model is not None
    copy = lowered.copy_for(edge.dst, edge.model)
    if edge.src == edge.dst:
        yield from (Arc(task.slot, task.slot, edge.delay, edge.data) for task in trainer)
    elif copy is None:
        for src in trainer:
            for dst in consumers:
                yield Arc(src.slot, dst.slot, edge.delay, edge.data)
                yield Arc(dst.slot, src.slot, 0, "order")
    else:
        for transfer in lowered.tasks.values():
            if transfer.slot.kind is not ItemKind.TRANSFER or transfer.slot.name != copy.name:
                continue
            yield from (Arc(src.slot, transfer.slot, edge.delay, edge.data) for src in trainer)
            for task in consumers:
                if set(task.lanes) & set(transfer.lanes):
                    yield Arc(transfer.slot, task.slot, 0, edge.data)
                    yield Arc(task.slot, transfer.slot, 1, "order")
