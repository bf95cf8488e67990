"""`HardwareModel`: rows of the search's tables for described hardware, from the op-by-op cost model."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rpeg import cost
from rpeg.errors import InfeasibleError, InputError
from rpeg.ir import Kind
from rpeg.plan import Assignment, Devices, Host, Parallelism
from rpeg.search.choices import ROWS, layouts, pieces
from rpeg.search.model import Cached, Floats, Kinds, Option, Placed, Profile, Use
from rpeg.search.problem import Problem
from rpeg.sim.costs import Batch
from rpeg.sim.hardware.alone import Alone, Held, Taken, transfer_seconds
from rpeg.sim.hardware.many import Choices
from rpeg.sim.hardware.sites import site
from rpeg.sim.stream import part_seconds, unit_size

MOST = 6
"""Options of a stage on a block that are kept: the fastest of those that no other beats in time and memory at once."""

_ROUNDING = 1e-9
"""Of sums of seconds in different orders."""


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


@dataclass(frozen=True)
class _Way:
    """Of running a stage. larger: the same with larger micro-batches, which stands for it where it fits."""

    alone: Alone
    larger: _Way | None = None

    @cached_property
    def taken(self) -> tuple[Taken, ...]:
        return self.alone.taken()

    def fits(self, capacity_bytes: float) -> bool:
        """Whether it does, and the larger does not."""
        if self.larger is not None and (self.larger.fits(capacity_bytes)):
            return False
        return max(one.peak for one in self.taken) <= capacity_bytes


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
        alone, batches = self._alone(profile, self._assigned(placed)), _batches(profile)
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
            engines = sorted(self._engines(profile, kind, devices, possible), key=lambda one: one.first)
            return tuple(self._engine_option(one) for one in _undominated(engines, wished)[:MOST])
        return tuple(self._priced(profile, self._best(profile, kind, devices, possible, wished)))

    def _best(
        self,
        profile: Profile,
        kind: int,
        devices: int,
        possible: Iterator[Parallelism],
        wished: frozenset[tuple[int, ...]],
    ) -> list[_Drafted]:
        """Of a stage that trains or scores, the first `MOST` that nothing beats of all that fit.

        In the order of what each takes at least, until none that is left can be among them.
        """
        ways = self._ways(profile, Devices(self.kinds[kind].ids[:devices]), possible)
        if not ways:
            return []
        choices = Choices([way.alone for way in ways], _batches(profile))
        least = [choices.least_seconds(i) * profile.items for i in range(len(ways))]
        kept: list[_Drafted] = []
        found: list[_Drafted] = []
        for i in sorted(range(len(ways)), key=least.__getitem__):
            if len(kept) == MOST and kept[-1].first < least[i] * (1 - _ROUNDING):
                break
            if ways[i].fits(self.kinds[kind].capacity_bytes) and not _hopeless(
                ways[i], least[i], kept, wished
            ):
                seconds = _by_draw(choices.seconds(i), profile)
                insort(found, _Drafted(ways[i].alone, seconds, ways[i].taken), key=lambda one: one.first)
                kept = _undominated(found, wished)[:MOST]
        return kept

    def _ways(self, profile: Profile, block: Devices, possible: Iterator[Parallelism]) -> list[_Way]:
        """Of running a stage that trains or scores under layouts that can run."""
        ways: list[_Way] = []
        for layout in possible:
            for recompute, sizes in pieces(self._problem, profile.stage, layout):
                larger: _Way | None = None
                for size in sizes:
                    assignment = Assignment(
                        profile.stage.name, block, layout, size, recompute=recompute, bundles=1
                    )
                    way = _Way(self._alone(profile, assignment), larger)
                    # without a pipeline smaller micro-batches are only slower
                    larger = way if layout.pp == 1 else None
                    ways.append(way)
        return [way for way in ways if way.alone.can_run]

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
                seconds, _ = alone.generation(profile.batches[0][:1], cache)[0]
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
        trains = profile.stage.kind is Kind.TRAIN
        shared: Sequence[Sequence[Use | None]] = [[None] * len(models) for _ in kept]
        if kept and trainable and not trains:
            whole = [replace(one.alone, trained=trainable) for one in kept]
            choices = Choices(whole, _batches(profile))
            shared = [_uses(one, _by_draw(choices.seconds(i), profile)) for i, one in enumerate(whole)]
        for one, theirs in zip(kept, shared, strict=True):
            a, own = one.alone.assignment, _uses(one.alone, one.seconds)
            uses = zip(theirs, own, strict=True) if trains else zip(own, theirs, strict=True)
            yield Option(a.parallelism, a.microbatch, a.recompute, tuple(uses))

    def _engine_option(self, one: _Drafted) -> Option:
        a, e = one.alone.assignment, one.alone.engine()
        cached = Cached(e.peak, e.generating, e.sequence, float(a.microbatch), e.wake, e.process)
        use = _use(np.zeros(0), one.alone.held()[0])
        return Option(a.parallelism, a.microbatch, a.recompute, ((use, use),), cached)


def _batches(profile: Profile) -> list[Batch]:
    return [batch for drawn in profile.batches for batch in drawn]


def _by_draw(seconds: Floats, profile: Profile) -> Floats:
    """(models, draws × items) → (models, items, draws)."""
    return seconds.reshape(len(seconds), profile.draws, profile.items).transpose(0, 2, 1)


def _uses(alone: Alone, seconds: Floats) -> list[Use]:
    return [_use(own, held) for own, held in zip(seconds, alone.held(), strict=True)]


def _use(seconds: Floats, held: Held) -> Use:
    return Use(
        seconds, held.peak, held.peak_apart, held.weights, held.more, held.process, held.moves, held.host
    )


def _in_stream(part: object) -> tuple[int, int, int]:
    return part.item, part.position, part.replica  # type: ignore[attr-defined]


def _hopeless(
    way: _Way, least_seconds: float, kept: Sequence[_Drafted], wished: frozenset[tuple[int, ...]]
) -> bool:
    """Whether an option that is kept already surely beats it."""
    if way.alone.assignment.parallelism.layout in wished:
        return False
    peak, resting = (sum(column) for column in zip(*way.taken, strict=True))
    faster = (one for one in kept if one.first < least_seconds * (1 - _ROUNDING))
    return any(_beats(one, peak, resting) for one in faster)


def _beats(one: _Drafted, peak: float, resting: float) -> bool:
    """In memory, whatever the seconds."""
    return one.peak <= peak * 1.001 and one.resting <= resting * 1.001


def _undominated(found: Sequence[_Drafted], wished: frozenset[tuple[int, ...]]) -> list[_Drafted]:
    """Of options in the order of their seconds those that need less than all faster ones, and the first of each layout
    that is wished for."""
    kept: list[_Drafted] = []
    seen: set[tuple[int, ...]] = set()
    for option in found:
        beaten = any(_beats(other, option.peak, option.resting) for other in kept)
        if not beaten or (option.layout in wished and option.layout not in seen):
            kept.append(option)
            seen.add(option.layout)
    return kept
