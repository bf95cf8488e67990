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
from rpeg.sim.hardware.alone import Alone, Held, Taken, transfer_seconds
from rpeg.sim.hardware.many import seconds_of
from rpeg.sim.hardware.sites import site
from rpeg.sim.stream import departures

MOST = 6
"""Options of a stage on a block that are kept: the fastest of those that no other beats in time and memory at once."""


@dataclass(frozen=True)
class _Drafted:
    """An option before all that it holds is known. seconds: (models, items, draws)."""

    alone: Alone
    seconds: Floats
    taken: tuple[Taken, ...]

    @property
    def layout(self) -> tuple[int, ...]:
        return self.alone.assignment.parallelism.layout

    @cached_property
    def first(self) -> float:
        """Seconds of the first draw, from its first item."""
        return float(self.seconds[:, 0, 0].sum()) * self.seconds.shape[1]

    @cached_property
    def peak(self) -> float:
        return sum(one.peak for one in self.taken)

    @cached_property
    def resting(self) -> float:
        return sum(one.resting for one in self.taken)


class HardwareModel:
    """Implements `CostModel` for a problem on described hardware."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._answered: dict[tuple[object, int, int, int], tuple[Option, ...]] = {}

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
        if profile.stage.kind is Kind.HOST:
            return (self._on_host(profile),)
        key = profile.key, kind, devices, align
        if key not in self._answered:
            self._answered[key] = self._options(profile, kind, devices, align)
        return self._answered[key]

    def generation(self, placed: Placed, cache_bytes: float) -> tuple[Floats, Floats]:
        profile = placed.profile
        alone = self._alone(profile, self._assigned(placed))
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

    def _alone(self, profile: Profile, assignment: Assignment) -> Alone:
        p = self._problem
        return Alone(profile.graph, p.cluster, p.workload, p.facts, profile.stage, assignment)

    def _on_host(self, profile: Profile) -> Option:
        alone = self._alone(profile, Assignment(profile.stage.name, Host(0)))
        seconds = np.array([[alone.host_seconds(batch) for batch in drawn] for drawn in profile.batches]).T
        return Option(Parallelism(), 1, "none", ((Use(seconds), None),))

    def _options(self, profile: Profile, kind: int, devices: int, align: int) -> tuple[Option, ...]:
        draft = self._engines if profile.stage.kind is Kind.GENERATE else self._drafted
        width = self.kinds[kind].width
        possible = layouts(self._problem, profile.stage, devices, width, align)
        found = sorted(draft(profile, kind, devices, possible), key=lambda option: option.first)
        kept = _undominated(found, self._trainers_layouts(profile, kind, devices, align))[:MOST]
        return (
            tuple(self._engine_option(profile, one) for one in kept)
            if profile.stage.kind is Kind.GENERATE
            else tuple(self._priced(profile, kept))
        )

    def _drafted(
        self, profile: Profile, kind: int, devices: int, possible: Iterator[Parallelism]
    ) -> Iterator[_Drafted]:
        """Of stages that train or score, all that fit by themselves."""
        block, capacity = Devices(self.kinds[kind].ids[:devices]), self.kinds[kind].capacity_bytes
        fitting = [fits for layout in possible for fits in self._fitting(profile, block, layout, capacity)]
        seconds = _seconds([alone for alone, _ in fitting], profile)
        for (alone, taken), own in zip(fitting, seconds, strict=True):
            yield _Drafted(alone, own, taken)

    def _fitting(
        self, profile: Profile, block: Devices, layout: Parallelism, capacity: float
    ) -> Iterator[tuple[Alone, tuple[Taken, ...]]]:
        """Ways of running under a layout whose memory fits."""
        stage = profile.stage
        for recompute, sizes in pieces(self._problem, stage, layout):
            for size in sizes:
                assignment = Assignment(stage.name, block, layout, size, recompute=recompute, bundles=1)
                alone = self._alone(profile, assignment)
                try:
                    taken = alone.taken()
                except InputError:
                    return
                if max(one.peak for one in taken) <= capacity:
                    yield alone, taken
                    if layout.pp == 1:
                        break  # smaller micro-batches are only slower

    def _engines(
        self, profile: Profile, kind: int, devices: int, possible: Iterator[Parallelism]
    ) -> Iterator[_Drafted]:
        """Of generators, all that have room for a sequence by themselves."""
        stage, room = profile.stage, self.kinds[kind]
        block = Devices(room.ids[:devices])
        for layout in possible:
            rows = min(ROWS, -(-self._problem.workload.samples // layout.dp))
            alone = self._alone(profile, Assignment(stage.name, block, layout, rows, bundles=1))
            try:
                engine, taken = alone.engine(), alone.taken()
                left = room.share * room.capacity_bytes - engine.generating
                if left < engine.sequence:
                    continue
                cache = min(left, engine.sequence * rows)
                seconds, _ = alone.generation(profile.batches[0][0], cache)
            except (InputError, InfeasibleError):
                continue
            yield _Drafted(alone, np.full((1, profile.items, 1), seconds), taken)

    def _trainers_layouts(
        self, profile: Profile, kind: int, devices: int, align: int
    ) -> frozenset[tuple[int, ...]]:
        """Layouts in which a stage that scores could use its trainers' weights."""
        trainers = profile.trainers if profile.stage.kind is Kind.INFERENCE else ()
        found = (self.options(trainer, kind, devices, align) for trainer in trainers)
        return frozenset(option.parallelism.layout for options in found for option in options)

    def _priced(self, profile: Profile, kept: Sequence[_Drafted]) -> Iterator[Option]:
        models = profile.stage.models
        trainable = frozenset(m for m in models if profile.graph.trainer(m) is not None)
        copies = [_uses(one.alone, one.seconds) for one in kept]
        trains = profile.stage.kind is Kind.TRAIN
        shared: list[list[Use | None]] = [[None] * len(models) for _ in kept]
        if trainable and not trains:
            whole = [replace(one.alone, trained=trainable) for one in kept]
            shared = [_uses(*each) for each in zip(whole, _seconds(whole, profile), strict=True)]
        for one, own, theirs in zip(kept, copies, shared, strict=True):
            a = one.alone.assignment
            uses = zip(theirs, own, strict=True) if trains else zip(own, theirs, strict=True)
            yield Option(a.parallelism, a.microbatch, a.recompute, tuple(uses))

    def _engine_option(self, profile: Profile, one: _Drafted) -> Option:
        a, e = one.alone.assignment, one.alone.engine()
        cached = Cached(e.peak, e.generating, e.sequence, float(a.microbatch), e.wake, e.process)
        use = _use(np.zeros(0), one.alone.held()[0])
        return Option(a.parallelism, a.microbatch, a.recompute, ((use, use),), cached)


def _seconds(alone: Sequence[Alone], profile: Profile) -> Floats:
    """(assignments, models, items, draws)."""
    if not alone:
        return np.zeros((0, 0, 0, 0))
    found = seconds_of(alone, [batch for drawn in profile.batches for batch in drawn])
    return found.reshape(*found.shape[:2], profile.draws, profile.items).transpose(0, 1, 3, 2)


def _uses(alone: Alone, seconds: Floats) -> list[Use | None]:
    return [_use(own, held) for own, held in zip(seconds, alone.held(), strict=True)]


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
        beaten = any(
            other.peak <= option.peak * 1.001 and other.resting <= option.resting * 1.001 for other in kept
        )
        if not beaten or (option.layout in wished and option.layout not in seen):
            kept.append(option)
            seen.add(option.layout)
    return kept
