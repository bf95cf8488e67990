"""From stages and edges to the items of a step and the arcs between them.

A stream begins where a generator's out-edge has a chunk: each replica's responses leave in parts, in the order in
which they complete. The finest parts are the *base parts*; they are numbered over all replicas by their place in the
stream, and every item downstream covers a set of them. An item depends on exactly those items of its source that
cover one of the same. How many samples a part holds is fixed here; which ones it holds is known when they complete.

Items of a split stage and of minibatches have *members*: samples that are theirs whatever the order of completion. They
cover all base parts, take their members from them, and wait for what holds one.

Stages that work in rounds (`Graph.rounds`) have an item for each round that a step may take. Later ones have reserved
slots, which take no time where they are not used: a round begins when the selector has judged the one before. What the
selector accepts of a round is a base part too, of as many samples as that are; whatever follows covers these.

Samples travel on arcs. Weights travel as transfer items, unless the consumer's layout coincides with the trainer's:
then both use the same memory and the version is there when the update is. What rests in host memory between its runs
comes and goes by items too (`resting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import gcd

from rpeg.ir import STATE, Edge, Freshness, Graph, Kind, Stage
from rpeg.plan.assignment import Assignment
from rpeg.plan.item import ItemKind, Slot
from rpeg.plan.lanes import Lanes, lanes_of
from rpeg.plan.members import Members, Minibatches, Prompts, ids_of_members, prompts_of_replica
from rpeg.plan.parts import BasePart, base_parts
from rpeg.plan.resting import Rest, rest_every, rest_slots, rests
from rpeg.plan.shares import Shares
from rpeg.workload import Workload


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
    members: of what it covers only these, where they are fixed before anything completes.
    makes: the base parts that leave it, where samples begin at it: of a generator those that it covers.
    """

    slot: Slot
    lanes: tuple[str, ...]
    every: int = 1
    first_step: int = 0
    observer: bool = False
    covers: tuple[int, ...] = ()
    share: tuple[int, int] = (0, 1)
    members: Members | None = None
    makes: tuple[int, ...] = ()

    def fires(self, step: int, steps: int) -> bool:
        """Whether it runs at `step` of a run of `steps`; observers run once more after the last."""
        if step == steps:
            return self.observer and step >= self.first_step
        return self.first_step <= step < steps and step % self.every == 0


@dataclass(frozen=True, slots=True)
class Arc:
    """`dst` at step t waits for `src` at step t - delay; at `part` of it where that is given, else at its end.

    why: the datum, or `order` for a read that must precede an overwriting and for minibatches one after another.
    if_members: it waits only where `src` (or that part of it) holds a member of `dst`, which is known when all members
    have left their generators.
    """

    src: Slot
    dst: Slot
    delay: int
    why: str
    part: int | None = None
    if_members: bool = False


@dataclass(frozen=True)
class Lowered:
    """The items of a step, the arcs between them, the base parts, the copies of weights and what rests on hosts."""

    tasks: Mapping[Slot, Task]
    arcs: tuple[Arc, ...]
    parts: tuple[BasePart, ...]
    copies: tuple[Copy, ...]
    held: Lanes = field(default_factory=lambda: Lanes({}))
    rests: tuple[Rest, ...] = ()

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

    @cached_property
    def _last_part(self) -> Mapping[str, int]:
        return {slot.name: slot.part for slot in sorted(self.tasks) if slot.kind is ItemKind.RUN}

    def ends(self, slot: Slot) -> bool:
        """Whether it is the last part of its stage: of a trainer the one that publishes."""
        return slot.kind is ItemKind.RUN and slot.part == self._last_part[slot.name]

    def parts_of(self, stage: str, replica: int) -> tuple[int, ...]:
        """The base parts of one replica of a generator, in the order in which they leave."""
        return tuple(i for i, p in enumerate(self.parts) if p.stage == stage and p.replica == replica)

    def copy_for(self, stage: str, model: str) -> Copy | None:
        """The copy that a stage reads a model from; None where it shares the trainer's or the model is frozen."""
        return next((c for c in self.copies if c.model == model and stage in c.stages), None)


def ids_to_generate(task: Task, workload: Workload, step: int) -> tuple[int, ...]:
    """The samples that a generator's item makes at a step; none for an observer, which has prompts of its own."""
    if not task.covers:
        return ()
    own = prompts_of_replica(workload.prompts, *task.share)
    members = task.members or Prompts(((own.start, own.stop),))
    return ids_of_members(members, workload, 0, step)


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
    return replace(lowered, arcs=tuple(dict.fromkeys(_arcs(shares, lowered))))


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
        yield Task(slot, lanes, stage.every, 0, observer, own.covers, own.share, own.members, own.makes)


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


def _rest_arcs(lowered: Lowered, rest: Rest) -> Iterator[Arc]:
    """Reload, then all that use it on the same lanes, then offload, then the next reload."""
    users = [task for slot, task in lowered.tasks.items() if rest.uses(slot)]
    for slot, task in lowered.tasks.items():
        if slot.kind is ItemKind.RELOAD and slot.name == rest.name:
            reload, offload = rest_slots(rest, slot.replica)
            here = [user for user in users if set(user.lanes) & set(task.lanes)]
            for user in here:
                yield Arc(reload, user.slot, 0, "reload")
                yield Arc(user.slot, offload, 0, "order")
            if not here:  # a replica that no part of a stream falls to
                yield Arc(reload, offload, 0, "order")
            yield Arc(offload, reload, 1, "order")


def _arcs(shares: Shares, lowered: Lowered) -> Iterator[Arc]:
    for edge in shares.graph.edges:
        if edge.is_control or edge.data in STATE:
            yield from _round_arcs(edge, lowered)
        elif edge.model is None:
            yield from _data_arcs(shares, edge, lowered)
        else:
            yield from _weights_arcs(edge, lowered)
    for stage in shares.graph.stages:
        if stage.kind is Kind.TRAIN:  # each minibatch begins with what the one before has made
            for first, second in pairwise(lowered.tasks_of(stage.name)):
                yield Arc(first.slot, second.slot, 0, "order")
    for rest in lowered.rests:
        yield from _rest_arcs(lowered, rest)


def _round_arcs(edge: Edge, lowered: Lowered) -> Iterator[Arc]:
    """To the next round of a step, or from the last round of a step to the first of the next."""
    src, dst = lowered.tasks_of(edge.src), lowered.tasks_of(edge.dst)
    last, first = src[-1].slot.part, 0
    for one in src:
        for other in dst:
            following = other.slot.part == one.slot.part + 1
            across = one.slot.part == last and other.slot.part == first
            if across if edge.delay else following:
                yield Arc(one.slot, other.slot, edge.delay, edge.data)


def _data_arcs(shares: Shares, edge: Edge, lowered: Lowered) -> Iterator[Arc]:
    streams = shares.graph.stage(edge.src).kind is Kind.GENERATE and edge.chunk is not None
    consumers = lowered.tasks_of(edge.dst)
    split = any(isinstance(dst.members, Prompts) for dst in consumers)
    by_round = edge.src in shares.graph.rounds and edge.dst in shares.graph.rounds
    for src in lowered.tasks_of(edge.src):
        held = shares.held(src.covers, src.members) if split and src.covers else None
        partial = _is_known_late(shares, src)
        leaving = src.makes or src.covers
        for dst in consumers:
            shared = set(leaving) & set(dst.covers)
            if leaving and dst.covers and not shared:
                continue
            if by_round and src.slot.part != dst.slot.part:
                continue
            if held and isinstance(dst.members, Prompts) and not held.meets(dst.members):
                continue
            fixed = src.members is not None and isinstance(dst.members, Minibatches)
            asked = dst.members is not None and (streams or partial or fixed)
            for part in sorted(shared) if streams else (None,):
                yield Arc(src.slot, dst.slot, edge.delay, edge.data, part, asked)


def _is_known_late(shares: Shares, task: Task) -> bool:
    """Whether which samples an item holds is known only when they have completed: those of some parts of a stream."""
    generates = shares.graph.stage(task.slot.name).kind is Kind.GENERATE
    whole = len(task.covers) == len(shares.everything(task.slot.name))
    return not generates and task.members is None and not whole


def _weights_arcs(edge: Edge, lowered: Lowered) -> Iterator[Arc]:
    trainer = lowered.tasks_of(edge.src)
    first, last = trainer[0].slot, trainer[-1].slot
    consumers = lowered.tasks_of(edge.dst)
    assert edge.model is not None
    copy = lowered.copy_for(edge.dst, edge.model)
    if edge.src == edge.dst:
        yield Arc(last, first, edge.delay, edge.data)
    elif copy is None:
        for dst in consumers:
            yield Arc(last, dst.slot, edge.delay, edge.data)
            yield Arc(dst.slot, first, 0, "order")
    else:
        for transfer in lowered.tasks.values():
            if transfer.slot.kind is not ItemKind.TRANSFER or transfer.slot.name != copy.name:
                continue
            yield Arc(last, transfer.slot, edge.delay, edge.data)
            for task in consumers:
                if set(task.lanes) & set(transfer.lanes):
                    yield Arc(transfer.slot, task.slot, 0, edge.data)
                    yield Arc(task.slot, transfer.slot, 1, "order")
