"""What each item of a stage takes of a step's samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rpeg.ir import Graph, Kind, Stage, Unit
from rpeg.plan.assignment import Assignment
from rpeg.plan.members import Members, Minibatches, Prompts, prompts_of_part
from rpeg.plan.parts import BasePart, merge, prompts_of_items
from rpeg.workload import Workload


@dataclass(frozen=True, slots=True)
class Share:
    """One item's: see `Task` for all but `part` and `replica`."""

    part: int
    replica: int
    covers: tuple[int, ...]
    share: tuple[int, int] = (0, 1)
    members: Members | None = None
    makes: tuple[int, ...] = ()
    hands_over: bool = False
    finishes: bool = False


@dataclass(frozen=True)
class Shares:
    """Cuts the stages' batches into items. parts: the base parts of all generators."""

    graph: Graph
    by_stage: Mapping[str, Assignment]
    workload: Workload
    parts: tuple[BasePart, ...]

    def of(self, stage: Stage) -> Iterator[Share]:
        """The items of a stage: parts in order, replicas within them."""
        edges = self.graph.data_into(stage.name)
        chunk = edges[0].chunk if edges else None
        if stage.kind is Kind.GENERATE:
            yield from self._of_generator(stage)
        elif stage.name in self.graph.rounds:
            yield from self._of_rounds(stage)
        elif chunk is None:
            yield from self._of_batch(stage)
        elif chunk.unit is Unit.MINIBATCH:
            yield from self._of_minibatches(stage, chunk.count)
        else:
            replicas = self.replicas(stage)
            merged = merge(self.graph, self.parts, self.graph.generators_of(stage.name), chunk.count)
            for i, covered in enumerate(merged):
                yield Share(i, i % replicas, covered)

    def everything(self, stage: str) -> tuple[int, ...]:
        """The base parts of all generators whose samples a stage works on."""
        sources = self.graph.generators_of(stage)
        return tuple(number for number, part in enumerate(self.parts) if part.stage in sources)

    def held(self, covers: tuple[int, ...], members: Members | None) -> Prompts:
        """The prompts of which an item can hold samples."""
        if isinstance(members, Prompts):
            return members
        items = dict.fromkeys((p.stage, p.replica, p.item) for p in (self.parts[number] for number in covers))
        return Prompts(tuple(self._prompts(self.graph.stage(name), r, item) for name, r, item in items))

    def replicas(self, stage: Stage) -> int:
        return self.by_stage[stage.name].replicas(stage.kind)

    def _of_generator(self, stage: Stage) -> Iterator[Share]:
        replicas, items = self.replicas(stage), self._items(stage)
        own: dict[tuple[int, int], list[int]] = {}
        for number, part in enumerate(self.parts):
            if part.stage == stage.name:
                own.setdefault((part.item, part.replica), []).append(number)
        for item in range(items):
            for r in range(replicas):
                apart = items > 1 or stage.name in self.graph.rounds
                members = Prompts((self._prompts(stage, r, item),)) if apart else None
                parts = tuple(own.get((item, r), ()))
                yield Share(item, r, parts, (r, replicas), members, parts, hands_over=bool(stage.migrates))
        if stage.migrates:
            parts = tuple(own.get((1, 0), ()))
            yield Share(1, 0, parts, (0, 1), None, parts, finishes=True)

    def _of_rounds(self, stage: Stage) -> Iterator[Share]:
        """A round's samples in one item of host work, else shared by the replicas."""
        replicas, everything = self.replicas(stage), self.everything(stage.name)
        count = 1 if stage.kind is Kind.HOST else replicas
        selects = stage == self.graph.selector
        for item in range(self._items(stage)):
            here = {n for n, part in enumerate(self.parts) if part.item == item}
            own = tuple(n for n in everything if n in here)
            made = tuple(n for n in sorted(here) if selects and self.parts[n].stage == stage.name)
            for r in range(count):
                yield Share(item, r, own, (r, count), None, made)

    def _items(self, stage: Stage) -> int:
        return self.workload.rounds if stage.name in self.graph.rounds else stage.parts

    def _of_batch(self, stage: Stage) -> Iterator[Share]:
        """The whole, or the parts of a split stage: host work in one item, else every replica takes a share."""
        replicas, everything = self.replicas(stage), self.everything(stage.name)
        count = 1 if stage.kind is Kind.HOST else replicas
        for part in range(stage.parts):
            members = self._split(stage, part) if stage.parts > 1 else None
            for r in range(count):
                on = part % replicas if stage.kind is Kind.HOST else r
                yield Share(part, on, everything, (r, count), members)

    def _of_minibatches(self, stage: Stage, count: int) -> Iterator[Share]:
        everything, last = self.everything(stage.name), self.workload.minibatches
        for i, first in enumerate(range(0, last, count)):
            yield Share(i, 0, everything, members=Minibatches(first, min(first + count, last)))

    def _split(self, stage: Stage, part: int) -> Prompts:
        """A part's prompts: of each replica of the generator those that it would do in that part, so that parts meet."""
        generators = self.graph.generators_of(stage.name)
        replicas = self.replicas(self.graph.stage(generators[0])) if generators else 1
        ranges = (
            prompts_of_part(self.workload.prompts, r, replicas, part, stage.parts) for r in range(replicas)
        )
        return Prompts(tuple((r.start, r.stop) for r in ranges if len(r)))

    def _prompts(self, generator: Stage, replica: int, item: int) -> tuple[int, int]:
        replicas = self.replicas(generator)
        if item and generator.migrates:  # whatever prompts the last responses are of
            return 0, self.workload.prompts
        own = prompts_of_items(self.graph, generator, replica, replicas, self.workload)[item]
        return own.start, own.stop
