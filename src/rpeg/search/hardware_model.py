"""`HardwareModel`: rows of the search's tables for described hardware, from the op-by-op cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from rpeg import cost
from rpeg.errors import InfeasibleError, InputError
from rpeg.ir import Kind
from rpeg.plan import Assignment, Devices, Host, Parallelism
from rpeg.search.choices import ROWS, layouts, pieces
from rpeg.search.model import Cached, Floats, Kinds, Option, Placed, Profile, Use
from rpeg.search.problem import Problem
from rpeg.search.ways import Drafted, Way, batches_of, best, by_draw, undominated
from rpeg.sim.hardware.alone import Alone, Held, transfer_seconds
from rpeg.sim.hardware.many import Choices
from rpeg.sim.hardware.sites import site
from rpeg.sim.stream import part_seconds, unit_size


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
        alone, batches = self._alone(profile, self._assigned(placed)), batches_of(profile)
        done = alone.generation(batches, cache_bytes)
        unit = unit_size(profile.graph, self._problem.workload, profile.stage.name)
        parts = sum(profile.bases, ())
        order = sorted(range(len(parts)), key=lambda i: _in_stream(parts[i]))
        offsets = np.zeros((len(parts), profile.draws))
        for draw in range(profile.draws):
            own = slice(draw * profile.items, (draw + 1) * profile.items)
            runs = zip(profile.bases, batches[own], done[own], strict=True)
            left = [part_seconds(part, batch, at, end, unit) for part, batch, (end, at) in runs]
            offsets[:, draw] = np.concatenate(left)[order] if parts else ()
        seconds = np.array([end for end, _ in done]).reshape(profile.draws, profile.items)
        return seconds.T, offsets

    def transfer(self, model: str, source: Placed, target: Placed, relation: int) -> float:
        here = self._assigned(source)
        first = 0 if relation or source.kind != target.kind else source.devices
        ids = self.kinds[target.kind].ids
        first = min(first, len(ids) - target.devices)
        there = replace(self._assigned(target), block=Devices(ids[first : first + target.devices]))
        p = self._problem
        return transfer_seconds(source.profile.graph, p.cluster, p.workload, p.facts, model, (here, there))

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
        possible = layouts(self._problem, profile.stage, devices, self.kinds[kind].width, align)
        wished = self._trainers_layouts(profile, kind, devices, align)
        if profile.stage.kind is Kind.GENERATE:
            engines = sorted(self._engines(profile, kind, devices, possible), key=lambda one: one.order)
            return tuple(self._engine_option(one) for one in undominated(engines, wished))
        ways = self.ways(profile, Devices(self.kinds[kind].ids[:devices]), possible)
        return tuple(self._priced(profile, best(ways, profile, self.kinds[kind].capacity_bytes, wished)))

    def ways(self, profile: Profile, block: Devices, possible: Iterator[Parallelism]) -> list[Way]:
        """Of running a stage that trains or scores under layouts that can run."""
        ways: list[Way] = []
        for layout in possible:
            for recompute, sizes in pieces(self._problem, profile.stage, layout):
                larger: Way | None = None
                for size in sizes:
                    assignment = Assignment(
                        profile.stage.name, block, layout, size, recompute=recompute, bundles=1
                    )
                    way = Way(self._alone(profile, assignment), larger)
                    # without a pipeline smaller micro-batches are only slower
                    larger = way if layout.pp == 1 else None
                    ways.append(way)
        return [way for way in ways if way.alone.can_run]

    def _engines(
        self, profile: Profile, kind: int, devices: int, possible: Iterator[Parallelism]
    ) -> Iterator[Drafted]:
        """Of generators, all that have room for a sequence by themselves."""
        stage, room = profile.stage, self.kinds[kind]
        block = Devices(room.ids[:devices])
        for layout in possible:
            rows = min(ROWS, -(-self._problem.workload.samples // layout.dp))
            alone = self._alone(profile, Assignment(stage.name, block, layout, rows, bundles=1))
            try:
                engine, taken = alone.engine, alone.taken()
                left = room.share * room.capacity_bytes - engine.generating
                if left < engine.sequence:
                    continue
                cache = min(left, engine.sequence * rows)
                seconds, _ = alone.generation(profile.batches[0][:1], cache)[0]
            except (InputError, InfeasibleError):
                continue
            yield Drafted(alone, np.full((1, profile.items, 1), seconds), taken)

    def _trainers_layouts(
        self, profile: Profile, kind: int, devices: int, align: int
    ) -> frozenset[tuple[int, ...]]:
        """Layouts in which a stage that scores could use its trainers' weights."""
        trainers = profile.trainers if profile.stage.kind is Kind.INFERENCE else ()
        found = (self.options(trainer, kind, devices, align) for trainer in trainers)
        return frozenset(option.parallelism.layout for options in found for option in options)

    def _priced(self, profile: Profile, kept: Sequence[Drafted]) -> Iterator[Option]:
        models = profile.stage.models
        trainable = frozenset(m for m in models if profile.graph.trainer(m) is not None)
        trains = profile.stage.kind is Kind.TRAIN
        shared: Sequence[Sequence[Use | None]] = [[None] * len(models) for _ in kept]
        if kept and trainable and not trains:
            whole = [replace(one.alone, trained=trainable) for one in kept]
            choices = Choices(whole, batches_of(profile))
            shared = [_uses(one, by_draw(choices.seconds(i), profile)) for i, one in enumerate(whole)]
        for one, theirs in zip(kept, shared, strict=True):
            a, own = one.alone.assignment, _uses(one.alone, one.seconds)
            uses = zip(theirs, own, strict=True) if trains else zip(own, theirs, strict=True)
            yield Option(a.parallelism, a.microbatch, a.recompute, tuple(uses))

    def _engine_option(self, one: Drafted) -> Option:
        a, e = one.alone.assignment, one.alone.engine
        cached = Cached(e.peak, e.generating, e.sequence, float(a.microbatch), e.wake, e.process)
        use = _use(np.zeros(0), one.alone.held()[0])
        return Option(a.parallelism, a.microbatch, a.recompute, ((use, use),), cached)


def _uses(alone: Alone, seconds: Floats) -> list[Use]:
    return [_use(own, held) for own, held in zip(seconds, alone.held(), strict=True)]


def _use(seconds: Floats, held: Held) -> Use:
    return Use(
        seconds, held.peak, held.peak_apart, held.weights, held.more, held.process, held.moves, held.host
    )


def _in_stream(part: object) -> tuple[int, int, int]:
    return part.item, part.position, part.replica  # type: ignore[attr-defined]
