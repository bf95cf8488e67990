"""`HardwareModel`: rows of the search's tables for described hardware, from the op-by-op cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rpeg import cost
from rpeg.errors import InfeasibleError, InputError
from rpeg.ir import Kind
from rpeg.plan import Assignment, Devices, Host, Parallelism, Plan
from rpeg.search.choices import ROWS, layouts, pieces
from rpeg.search.model import Cached, Floats, Kinds, Option, Placed, Profile, Use
from rpeg.search.problem import Problem
from rpeg.sim.costs import Batch, Completions
from rpeg.sim.hardware.alone import Alone, Held, transfer_seconds
from rpeg.sim.hardware.sites import site
from rpeg.sim.stream import departures

MOST = 6
"""Options of a stage on a block that are kept: the fastest of those that no other beats in time and memory at once."""


@dataclass(frozen=True)
class _Drafted:
    """An option before all draws are priced: seconds of the first, and what it holds."""

    assignment: Assignment
    seconds: float
    held: tuple[Held, ...]

    @property
    def peak(self) -> float:
        return sum(one.peak for one in self.held)

    @property
    def resting(self) -> float:
        return sum(one.weights + one.more for one in self.held)


class HardwareModel:
    """Implements `CostModel` for a problem on described hardware."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._layouts: dict[tuple[object, int, int, int], frozenset[tuple[int, ...]]] = {}

    @cached_property
    def kinds(self) -> tuple[Kinds, ...]:
        cluster, found = self._problem.cluster, []
        for kind in cluster.kinds:
            nodes = [n for n, node in enumerate(cluster.nodes) if node.kind == kind]
            ids = tuple(i for n in nodes for i in cluster.devices_of(n))
            place = site(cluster, Devices(ids))
            node = cluster.nodes[nodes[0]]
            found.append(
                Kinds(
                    kind.name,
                    ids,
                    node.devices,
                    float(kind.usable_memory_bytes),
                    place.machine(self._problem.facts.engine).stack.serving.memory_share,
                    float(node.host_memory_bytes),
                )
            )
        return tuple(found)

    @cached_property
    def dispatch_seconds(self) -> float:
        return cost.call(cost.Timing(self._problem.cluster.kinds[0], self._problem.facts.dtype)).seconds

    def options(self, profile: Profile, kind: int, devices: int, align: int) -> Sequence[Option]:
        stage = profile.stage
        if stage.kind is Kind.HOST:
            return (self._on_host(profile),)
        width = self.kinds[kind].width
        found = [
            option
            for layout in layouts(self._problem, stage, devices, width, align)
            for option in self._of_layout(profile, kind, devices, layout)
        ]
        capacity = self.kinds[kind].capacity_bytes
        found = [option for option in found if max(one.peak for one in option.held) <= capacity]
        found.sort(key=lambda option: option.seconds)
        wished = self._trainers_layouts(profile, kind, devices, align)
        kept = _undominated(found, wished)[:MOST]
        key = (profile.key, kind, devices, align)
        self._layouts[key] = frozenset(option.assignment.parallelism.layout for option in kept)
        return tuple(self._priced(profile, option) for option in kept)

    def generation(self, placed: Placed, cache_bytes: float) -> tuple[Floats, Floats]:
        profile = placed.profile
        alone = self._alone(profile, self._assigned(placed), frozenset())
        items = np.zeros((profile.items, profile.draws))
        bases: list[tuple[int, float]] = []
        count = sum(map(len, profile.bases))
        offsets = np.zeros((count, profile.draws))
        for draw, batches in enumerate(profile.batches):
            bases = []
            for item, batch in enumerate(batches):
                done = Completions(*alone.generation(batch, cache_bytes))
                items[item, draw] = done.seconds
                bases += self._departures(profile, item, batch, done)
            offsets[:, draw] = [seconds for _, seconds in sorted(bases)]
        return items, offsets

    def transfer(self, model: str, source: Placed, target: Placed, relation: int) -> float:
        here = self._assigned(source)
        first = 0 if relation or source.kind != target.kind else source.devices
        ids = self.kinds[target.kind].ids
        first = min(first, len(ids) - target.devices)
        there = replace(self._assigned(target), block=Devices(ids[first : first + target.devices]))
        p = self._problem
        return transfer_seconds(source.profile.graph, p.cluster, p.workload, p.facts, model, (here, there))

    def _departures(
        self, profile: Profile, item: int, batch: Batch, done: Completions
    ) -> Iterator[tuple[int, float]]:
        """(number of a base part, when it leaves), of one item."""
        parts = profile.bases[item]
        plan = Plan(profile.graph, self._problem.cluster, self._problem.workload, ())
        left = departures(plan, profile.stage.name, parts, batch, done)
        order = {part: i for i, part in enumerate(sorted(sum(profile.bases, ()), key=_in_stream))}
        yield from ((order[part], seconds) for part, (seconds, _) in zip(parts, left, strict=True))

    def _assigned(self, placed: Placed) -> Assignment:
        option = placed.option
        block = Devices(self.kinds[placed.kind].ids[: placed.devices])
        stage = placed.profile.stage.name
        return Assignment(
            stage, block, option.parallelism, option.microbatch, recompute=option.recompute, bundles=1
        )

    def _alone(self, profile: Profile, assignment: Assignment, trained: frozenset[str]) -> Alone:
        p = self._problem
        return Alone(profile.graph, p.cluster, p.workload, p.facts, profile.stage, assignment, trained)

    def _on_host(self, profile: Profile) -> Option:
        alone = self._alone(profile, Assignment(profile.stage.name, Host(0)), frozenset())
        return Option(Parallelism(), 1, "none", ((Use(_seconds(alone, profile)[0]), None),))

    def _of_layout(
        self, profile: Profile, kind: int, devices: int, layout: Parallelism
    ) -> Iterator[_Drafted]:
        stage, block = profile.stage, Devices(self.kinds[kind].ids[:devices])
        if stage.kind is Kind.GENERATE:
            rows = min(ROWS, -(-self._problem.workload.samples // layout.dp))
            yield from self._engine_drafted(profile, Assignment(stage.name, block, layout, rows, bundles=1))
            return
        capacity = self.kinds[kind].capacity_bytes
        for recompute, sizes in pieces(self._problem, stage, layout):
            for size in sizes:
                assignment = Assignment(stage.name, block, layout, size, recompute=recompute, bundles=1)
                drafted = self._drafted(profile, assignment, capacity)
                if drafted is not None:
                    yield drafted
                    if layout.pp == 1:
                        break  # smaller micro-batches are only slower

    def _drafted(self, profile: Profile, assignment: Assignment, capacity: float) -> _Drafted | None:
        alone = self._alone(profile, assignment, frozenset())
        try:
            held = alone.held()
            if max(one.peak for one in held) > capacity:
                return None
            return _Drafted(assignment, sum(alone.seconds(profile.batches[0][0])) * profile.items, held)
        except (InputError, InfeasibleError):
            return None

    def _engine_drafted(self, profile: Profile, assignment: Assignment) -> Iterator[_Drafted]:
        alone = self._alone(profile, assignment, frozenset())
        try:
            engine, held = alone.engine(), alone.held()
            room = self.kinds[self._kind_of(assignment)]
            left = room.share * room.capacity_bytes - engine.generating
            if left < engine.sequence:
                return
            cache = min(left, engine.sequence * assignment.microbatch)
            seconds, _ = alone.generation(profile.batches[0][0], cache)
        except (InputError, InfeasibleError):
            return
        yield _Drafted(assignment, seconds * profile.items, held)

    def _kind_of(self, assignment: Assignment) -> int:
        assert isinstance(assignment.block, Devices)
        name = self._problem.cluster.device(assignment.block.ids[0]).kind.name
        return next(i for i, kind in enumerate(self.kinds) if kind.name == name)

    def _trainers_layouts(
        self, profile: Profile, kind: int, devices: int, align: int
    ) -> frozenset[tuple[int, ...]]:
        """Layouts in which a stage that scores could use its trainers' weights."""
        found: frozenset[tuple[int, ...]] = frozenset()
        for trainer in profile.trainers if profile.stage.kind is Kind.INFERENCE else ():
            key = (trainer.key, kind, devices, align)
            if key not in self._layouts:
                self.options(trainer, kind, devices, align)
            found |= self._layouts[key]
        return found

    def _priced(self, profile: Profile, drafted: _Drafted) -> Option:
        a = drafted.assignment
        if profile.stage.kind is Kind.GENERATE:
            e = self._alone(profile, a, frozenset()).engine()
            cached = Cached(e.peak, e.generating, e.sequence, float(a.microbatch), e.wake, e.process)
            use = _use(np.zeros(0), drafted.held[0])
            return Option(a.parallelism, a.microbatch, a.recompute, ((use, use),), cached)
        models = profile.stage.models
        trainable = frozenset(m for m in models if profile.graph.trainer(m) is not None)
        apart = [None] * len(models)
        copies = self._uses(profile, a, frozenset(), drafted.held)
        if profile.stage.kind is Kind.TRAIN:
            return Option(a.parallelism, a.microbatch, a.recompute, tuple(zip(apart, copies, strict=True)))
        shared: Sequence[Use | None] = apart
        if trainable:
            shared = self._uses(profile, a, trainable, self._alone(profile, a, trainable).held())
        return Option(a.parallelism, a.microbatch, a.recompute, tuple(zip(copies, shared, strict=True)))

    def _uses(
        self, profile: Profile, assignment: Assignment, trained: frozenset[str], held: tuple[Held, ...]
    ) -> list[Use]:
        seconds = _seconds(self._alone(profile, assignment, trained), profile)
        return [_use(seconds[slot], one) for slot, one in enumerate(held)]


def _seconds(alone: Alone, profile: Profile) -> Floats:
    """(models, items, draws)."""
    found = [[alone.seconds(batch) for batch in batches] for batches in profile.batches]
    return np.array(found).transpose(2, 1, 0)


def _use(seconds: Floats, held: Held) -> Use:
    return Use(
        seconds, held.peak, held.peak_apart, held.weights, held.more, held.process, held.moves, held.host
    )


def _in_stream(part: object) -> tuple[int, int, int]:
    return part.item, part.position, part.replica  # type: ignore[attr-defined]


def _undominated(found: Sequence[_Drafted], wished: frozenset[tuple[int, ...]]) -> list[_Drafted]:
    """Of options in the order of their seconds those that need less than all faster ones, and the first of each layout
    that is wished for."""
    kept: list[_Drafted] = []
    seen: set[tuple[int, ...]] = set()
    for option in found:
        layout = option.assignment.parallelism.layout
        beaten = any(
            other.peak <= option.peak * 1.001 and other.resting <= option.resting * 1.001 for other in kept
        )
        if not beaten or (layout in wished and layout not in seen):
            kept.append(option)
            seen.add(layout)
    return kept
