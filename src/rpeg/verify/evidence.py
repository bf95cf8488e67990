"""What a trace says, indexed for the properties. Tolerant: a broken trace is evidence too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from rpeg.ir import KEPT, Kind
from rpeg.plan import Arc, Item, ItemKind, Lowered, Task, lane_items, lower, source_step
from rpeg.trace import Entry, Span, Trace, What

K = TypeVar("K")

CLOCK_SLACK_SECONDS = 1e-6
"""Differences of times below this are rounding: clocks count from their machine's boot, in double precision."""

Breach = tuple[str, tuple[Item | Entry | Span, ...]]
"""A sentence, and the counterexample: what contradicts it."""


@dataclass(frozen=True)
class Evidence:
    """A trace with its indexes. Where something happened twice, the first counts; a property of the log objects."""

    trace: Trace

    @cached_property
    def lowered(self) -> Lowered:
        plan = self.trace.plan
        return lower(plan.graph, plan.assignments, plan.workload)

    @cached_property
    def commands(self) -> Mapping[Item, Entry]:
        """The command that begins each item."""
        return _first(e for e in self.trace.entries if e.what.begins)

    @cached_property
    def finished(self) -> Mapping[Item, Entry]:
        return _first(e for e in self.trace.entries if e.what is What.FINISHED)

    @cached_property
    def produced(self) -> Mapping[tuple[Item, int | None], Entry]:
        """(item of a generator, base part) → the event of its leaving."""
        found: dict[tuple[Item, int | None], Entry] = {}
        for entry in self.trace.entries:
            if entry.what is What.PRODUCED:
                found.setdefault((entry.item, entry.part), entry)
        return found

    @cached_property
    def spans(self) -> Mapping[Item, tuple[Span, ...]]:
        return _grouped((span.item, span) for span in self.trace.spans)

    @cached_property
    def spans_of_worker(self) -> Mapping[str, tuple[Span, ...]]:
        return _grouped((span.worker, span) for span in self.trace.spans)

    @cached_property
    def spans_of_lane(self) -> Mapping[str, tuple[Span, ...]]:
        """In the order of their own clock; at equal times in the order of their commands."""
        by_time = sorted(self.trace.spans, key=lambda s: (s.start_seconds, s.end_seconds, s.launch))
        return _grouped((span.lane, span) for span in by_time)

    @cached_property
    def demanded(self) -> tuple[Item, ...]:
        """All items that the plan's steps demand; of rounds those that ran, or would have to."""
        trace = self.trace
        return tuple(
            slot.at(step)
            for step in range(trace.first_step, trace.steps + 1)
            for slot, task in self.lowered.tasks.items()
            if task.fires(step, trace.steps) and not self.is_passed(slot.at(step))
        )

    @cached_property
    def _accepted(self) -> Mapping[int, Mapping[int, int]]:
        """Step → round → how many samples the selector accepted in it."""
        selector = self.trace.plan.graph.selector
        found: dict[int, dict[int, int]] = {}
        for (item, _), entry in self.produced.items():
            if selector is not None and item.name == selector.name:
                rounds = found.setdefault(item.step, {})
                rounds[item.part] = rounds.get(item.part, 0) + len(entry.ids)
        return found

    def accepted_before(self, step: int, number: int) -> int:
        """Samples that the selector had accepted for a step before the round of this number."""
        return sum(count for part, count in self._accepted.get(step, {}).items() if part < number)

    def kept_for(self, step: int) -> frozenset[int] | None:
        """Samples that the step before has kept for this one; None where this stretch does not tell."""
        selector = self.trace.plan.graph.selector
        if selector is None or KEPT not in selector.gives or step == 0:
            return frozenset()
        return self._kept.get(step - 1, frozenset()) if step > self.trace.first_step else None

    @cached_property
    def _kept(self) -> Mapping[int, frozenset[int]]:
        found: dict[int, frozenset[int]] = {}
        for entry in self.trace.entries:
            if entry.what is What.KEPT:
                found[entry.item.step] = found.get(entry.item.step, frozenset()) | set(entry.ids)
        return found

    def is_passed(self, item: Item) -> bool:
        """Whether an item belongs to a round for which there was no need."""
        plan = self.trace.plan
        later = item.kind is ItemKind.RUN and item.name in plan.graph.rounds and item.part > 0
        return later and self.accepted_before(item.step, item.part) >= plan.workload.samples

    @cached_property
    def turn_of(self) -> Mapping[str, Mapping[Item, int]]:
        """Lane → item → its place in the plan's order, periods unrolled."""
        trace = self.trace
        return {
            lane.name: {
                item: i
                for i, item in enumerate(lane_items(lane, self.lowered, trace.first_step, trace.steps))
            }
            for lane in trace.plan.order
        }

    def task(self, item: Item) -> Task | None:
        """None for an item that the plan does not know."""
        return self.lowered.tasks.get(item.slot)

    def kind(self, item: Item) -> Kind | None:
        """The kind of the stage that an item runs; None for movements and what the plan does not know."""
        known = item.kind is ItemKind.RUN and self.task(item) is not None
        return self.trace.plan.graph.stage(item.name).kind if known else None

    def sources(self, item: Item) -> Iterator[tuple[Arc, Item]]:
        """The arcs into an item, each with the item of this stretch that it leads from.

        Of those that count only where the source holds members of the item, those that do by the log.
        """
        for arc in self.lowered.arcs_into.get(item.slot, ()):
            step = source_step(self.lowered.tasks[arc.src], item.step - arc.delay, self.trace.steps)
            if step is not None and step >= self.trace.first_step:
                source = arc.src.at(step)
                unused = self.is_passed(source)
                if not unused and (not arc.if_members or self._may_hold_members(arc, source, item)):
                    yield arc, source

    def _may_hold_members(self, arc: Arc, source: Item, item: Item) -> bool:
        """Whether a source holds a sample that `item` was commanded to work on; also where the log does not say."""
        command, task = self.commands.get(item), self.task(source)
        if command is None or task is None:
            return True
        found = self._parts_of_samples.get(item.step, {})
        own_task = self.task(item)
        parts = self.lowered.parts
        generators = {parts[number].stage for number in own_task.covers} if own_task is not None else set()
        if any({parts[n].stage for n in found.get(i, ())} < generators for i in command.ids):
            return True
        if arc.part is None and task.members is not None:
            own = self.commands.get(source)
            return own is None or not set(own.ids).isdisjoint(command.ids)
        covered = set(task.covers) if arc.part is None else {arc.part}
        return any(not covered.isdisjoint(found[i]) for i in command.ids)

    @cached_property
    def _parts_of_samples(self) -> Mapping[int, Mapping[int, tuple[int, ...]]]:
        """Step → sample → the base parts that it left in, one of each generator."""
        found: dict[int, dict[int, tuple[int, ...]]] = {}
        for (item, part), entry in self.produced.items():
            known = found.setdefault(item.step, {})
            if part is not None and part < len(self.lowered.parts):
                known.update((i, (*known.get(i, ()), part)) for i in entry.ids)
        return found

    def arrival(self, arc: Arc, source: Item) -> Entry | None:
        """The event that satisfies an arc; None where the log has none."""
        return self.finished.get(source) if arc.part is None else self.produced.get((source, arc.part))


def _first(entries: Iterator[Entry]) -> dict[Item, Entry]:
    found: dict[Item, Entry] = {}
    for entry in entries:
        found.setdefault(entry.item, entry)
    return found


def _grouped(pairs: Iterator[tuple[K, Span]]) -> dict[K, tuple[Span, ...]]:
    found: dict[K, list[Span]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}


Property = Callable[[Evidence], Iterator[Breach]]
