"""Changes of a sound run that leave it sound: other clocks, other times, another order of what was concurrent.

A shift takes a run and a source of randomness; what it gives must be proven as the run was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

from rpeg.ir import Kind
from rpeg.trace import Entry, Span, Trace, What
from rpeg.verify import Evidence, on_driver_clock
from verify.lies import Run, with_entries, with_spans

Shift = Callable[[Trace, Random], Trace]


def other_clocks(trace: Trace, draw: Random) -> Trace:
    """Each worker counts from another moment."""
    ahead = {worker: draw.uniform(-1e6, 1e6) for worker in sorted({s.worker for s in trace.spans})}
    return with_spans(trace, lambda s: _later(s, ahead[s.worker]))


def another_clock_of_the_driver(trace: Trace, draw: Random) -> Trace:
    by = draw.uniform(-1e6, 1e6)
    return with_entries(trace, lambda e: replace(e, seconds=e.seconds + by))


def a_slower_machine(trace: Trace, draw: Random) -> Trace:
    """All that happens takes as much longer."""
    by = draw.uniform(1.0, 20.0)
    slower = with_entries(trace, lambda e: replace(e, seconds=e.seconds * by))
    return with_spans(
        slower, lambda s: replace(s, start_seconds=s.start_seconds * by, end_seconds=s.end_seconds * by)
    )


def a_pause(trace: Trace, draw: Random) -> Trace:
    """At some moment everything stands still for a while."""
    aligned = _aligned(trace)
    gaps = [(a.seconds, b.seconds) for a, b in pairwise(aligned.entries) if b.seconds - a.seconds > 1e-3]
    if not gaps:
        return trace
    at, by = sum(draw.choice(gaps)) / 2, draw.uniform(0.1, 100)

    def paused(seconds: float) -> float:
        return seconds + by if seconds >= at else seconds

    later = with_entries(aligned, lambda e: replace(e, seconds=paused(e.seconds)))
    return with_spans(
        later, lambda s: replace(s, start_seconds=paused(s.start_seconds), end_seconds=paused(s.end_seconds))
    )


def shorter_work(trace: Trace, draw: Random) -> Trace:
    """Workers begin later and are done sooner than they were heard of."""
    heard: dict[object, float] = {}
    for entry in trace.entries:
        if entry.what is What.PRODUCED:
            heard.setdefault(entry.item, entry.seconds)
    on_driver = {id(s): t for s, t in zip(trace.spans, on_driver_clock(trace), strict=True)}

    def shorter(span: Span) -> Span:
        slack = max(0.0, heard.get(span.item, float("inf")) - on_driver[id(span)].start_seconds)
        late, early = min(draw.random() * span.seconds, slack) / 2, draw.random() * span.seconds / 2
        return replace(span, start_seconds=span.start_seconds + late, end_seconds=span.end_seconds - early)

    return with_spans(trace, shorter)


def longer_work(trace: Trace, draw: Random) -> Trace:
    """Spans begin as early, or end as late, as their command, their neighbours and what was heard of them let them."""
    aligned = _aligned(trace)
    evidence, early = Evidence(aligned), draw.random() < 0.5
    new: dict[int, Span] = {}
    for spans in evidence.spans_of_lane.values():
        for before, span, after in zip((None, *spans), spans, (*spans[1:], None), strict=False):
            inputs = [
                s.end_seconds
                for _, source in evidence.sources(span.item)
                for s in evidence.spans.get(source, ())
                if s.worker == span.worker
            ]
            least = max(
                [evidence.commands[span.item].seconds, *inputs, *([before.end_seconds] if before else [])]
            )
            heard = evidence.finished.get(span.item)
            ends = [heard.seconds if heard else span.end_seconds, *([after.start_seconds] if after else [])]
            start, end = span.start_seconds, span.end_seconds
            if early:
                start -= max(0.0, start - least) * draw.random()
            else:
                end += max(0.0, min(ends) - end) * draw.random()
            new[id(span)] = replace(span, start_seconds=start, end_seconds=end)
    return with_spans(aligned, lambda s: new[id(s)])


def late_news(trace: Trace, draw: Random) -> Trace:
    """Whatever the driver hears or does, it does up to the next thing's time."""
    entries = list(trace.entries)
    for i in range(len(entries) - 1):
        if not entries[i].what.begins:
            gap = max(0.0, entries[i + 1].seconds - entries[i].seconds)
            entries[i] = replace(entries[i], seconds=entries[i].seconds + gap * draw.random())
    return replace(trace, entries=tuple(entries))


def concurrent_things_in_another_order(trace: Trace, draw: Random) -> Trace:
    """Neighbours in the log that know nothing of each other change places."""
    entries, evidence = list(trace.entries), Evidence(trace)
    number = {e.seq: e.seq for e in entries}
    waits = {(source, item) for item in evidence.commands for _, source in evidence.sources(item)}
    for _ in range(len(entries)):
        at = draw.randrange(max(1, len(entries) - 1))
        first, second = (*entries[at : at + 2], None, None)[:2]
        if first is None or second is None or not _independent(evidence, first, second, waits):
            continue
        # a command may leave earlier and an event be heard later, and neither the other way round
        command, event = (
            first.seconds if second.what.begins else second.seconds,
            second.seconds if not first.what.begins else first.seconds,
        )
        entries[at] = replace(second, seq=first.seq, seconds=command)
        entries[at + 1] = replace(first, seq=second.seq, seconds=event)
        number = {
            old: {first.seq: second.seq, second.seq: first.seq}.get(new, new) for old, new in number.items()
        }
    changed = replace(trace, entries=tuple(entries))
    return with_spans(changed, lambda s: replace(s, launch=number.get(s.launch, s.launch)))


def _independent(evidence: Evidence, first: Entry, second: Entry, waits: set[tuple[object, object]]) -> bool:
    """Whether neither is of what the other waits for, be it data, weights, a lane or a verdict."""
    if first.item == second.item or (first.item, second.item) in waits:
        return False
    if first.what.begins and not second.what.begins:
        return False  # the command would leave after its item began, or the event be heard before it happened
    tasks = evidence.task(first.item), evidence.task(second.item)
    if None in tasks or not set(tasks[0].lanes).isdisjoint(tasks[1].lanes):  # type: ignore[union-attr]
        return False
    publishes = first.what is What.FINISHED and evidence.kind(first.item) is Kind.TRAIN
    return not (publishes and second.versions) and not _selects(first) and not _selects(second)


def _selects(entry: Entry) -> bool:
    """Verdicts say which rounds there is need for."""
    return entry.what in (What.REJECTED, What.KEPT) or entry.wanted > 0


def one_lane_tells_for_its_rank(trace: Trace, draw: Random) -> Trace:
    """Of lanes that hold shards of one replica only the first tells its samples."""
    evidence = Evidence(trace)
    silent: set[int] = set()
    for item, spans in evidence.spans.items():
        task = evidence.task(item)
        if task is None or evidence.kind(item) is None:
            continue
        by_lane = {s.lane: s for s in spans}
        for cell in evidence.lowered.held.cells(trace.plan.assignment(item.name), task.lanes):
            silent |= {id(by_lane[lane]) for lane in cell.lanes[1:] if lane in by_lane}
    return with_spans(
        trace, lambda s: replace(s, ids=(), tokens=0) if id(s) in silent and draw.random() < 0.5 else s
    )


def a_crash(trace: Trace, draw: Random) -> Trace:
    """The log ends somewhere, and spans of items that were not heard of are there or not."""
    entries = trace.entries[: draw.randint(0, len(trace.entries))]
    last = entries[-1].seq if entries else -1
    ended = {e.item for e in entries if e.what is What.FINISHED}
    spans = tuple(
        s for s in trace.spans if s.launch <= last and (s.item in ended or draw.random() < 0.5)
    )  # fmt: skip
    return replace(trace, entries=entries, spans=spans, complete=False)


def less_memory(trace: Trace, draw: Random) -> Trace:
    return with_spans(trace, lambda s: replace(s, memory_bytes=int(s.memory_bytes * draw.random())))


SHIFTS: tuple[Shift, ...] = (
    other_clocks,
    another_clock_of_the_driver,
    a_slower_machine,
    a_pause,
    shorter_work,
    longer_work,
    late_news,
    concurrent_things_in_another_order,
    one_lane_tells_for_its_rank,
    less_memory,
)
"""Any of them after any other. `a_crash` is for the last stretch of a run, whose end nobody owes."""


def shifted(run: Run, draw: Random, most: int = 4) -> Run:
    """Some shifts of every stretch, one after another, and perhaps a crash at the end."""

    def some(trace: Trace, last: bool) -> Iterator[Trace]:
        for shift in draw.sample(SHIFTS, draw.randint(1, most)):
            trace = shift(trace, draw)
        yield a_crash(trace, draw) if last and draw.random() < 0.25 else trace

    return tuple(found for i, trace in enumerate(run) for found in some(trace, i == len(run) - 1))


def _aligned(trace: Trace) -> Trace:
    return replace(trace, spans=on_driver_clock(trace))


def _later(span: Span, by: float) -> Span:
    return replace(span, start_seconds=span.start_seconds + by, end_seconds=span.end_seconds + by)
