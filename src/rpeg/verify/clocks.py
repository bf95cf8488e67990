"""Workers' clocks against the driver's.

Two clocks are compared only through messages: a worker starts an item after the driver's command left, and the driver
hears of a part or an end after it happened. So with `offset` added to a worker's clock,

    command ≤ start + offset,  start + offset ≤ heard of a part,  end + offset ≤ heard of the end,

for all its spans at once. These difference constraints leave an interval of offsets; an empty one is a contradiction.
A shift of the whole clock moves the interval and breaks nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rpeg.trace import Entry, Span, Trace
from rpeg.verify.evidence import CLOCK_SLACK_SECONDS, Breach, Evidence, Property


@dataclass(frozen=True, slots=True)
class Offset:
    """What may be added to a worker's clock to give the driver's: any number of least_seconds … most_seconds.

    least, most: the span and the log entry that bound it.
    """

    least_seconds: float = -math.inf
    most_seconds: float = math.inf
    least: tuple[Span, Entry] | None = None
    most: tuple[Span, Entry] | None = None

    @property
    def exists(self) -> bool:
        return self.least_seconds <= self.most_seconds + CLOCK_SLACK_SECONDS

    @property
    def middle_seconds(self) -> float:
        """The middle of the interval; its finite end where it has but one, 0 where it has none."""
        ends = [x for x in (self.least_seconds, self.most_seconds) if math.isfinite(x)]
        return sum(ends) / len(ends) if ends else 0.0

    def at_least(self, seconds: float, span: Span, entry: Entry) -> Offset:
        return (
            replace(self, least_seconds=seconds, least=(span, entry))
            if seconds > self.least_seconds
            else self
        )

    def at_most(self, seconds: float, span: Span, entry: Entry) -> Offset:
        return (
            replace(self, most_seconds=seconds, most=(span, entry)) if seconds < self.most_seconds else self
        )


def offsets(evidence: Evidence) -> Mapping[str, Offset]:
    """Each worker's interval of offsets."""
    heard: dict[object, Entry] = {}  # the first part that was heard of each item
    for (item, _), entry in evidence.produced.items():
        if item not in heard or entry.seconds < heard[item].seconds:
            heard[item] = entry
    found: dict[str, Offset] = {}
    for worker, spans in evidence.spans_of_worker.items():
        offset = Offset()
        for span in spans:
            command, part = evidence.commands.get(span.item), heard.get(span.item)
            end = evidence.finished.get(span.item)
            if command is not None:
                offset = offset.at_least(command.seconds - span.start_seconds, span, command)
            if part is not None:
                offset = offset.at_most(part.seconds - span.start_seconds, span, part)
            if end is not None:
                offset = offset.at_most(end.seconds - span.end_seconds, span, end)
        found[worker] = offset
    return found


def clock_offsets(trace: Trace) -> Mapping[str, Offset]:
    """Each worker's interval of offsets to the driver's clock."""
    return offsets(Evidence(trace))


def on_driver_clock(trace: Trace) -> tuple[Span, ...]:
    """The spans with the middle of their worker's interval of offsets added: for showing, not for proving."""
    add = {worker: offset.middle_seconds for worker, offset in clock_offsets(trace).items()}
    return tuple(
        replace(
            span,
            start_seconds=span.start_seconds + add[span.worker],
            end_seconds=span.end_seconds + add[span.worker],
        )
        for span in trace.spans
    )


def spans_do_not_end_before_they_start(evidence: Evidence) -> Iterator[Breach]:
    for span in evidence.trace.spans:
        if not span.start_seconds <= span.end_seconds:
            yield (
                f"{span.item} ended {span.start_seconds - span.end_seconds:.6f} s before it started",
                (span,),
            )


def clocks_differ_by_a_constant(evidence: Evidence) -> Iterator[Breach]:
    """One offset makes every span of a worker start after its command and end before that was heard."""
    for worker, offset in offsets(evidence).items():
        if not offset.exists and offset.least is not None and offset.most is not None:
            (early, command), (late, heard) = offset.least, offset.most
            yield (
                f"no offset of {worker}'s clock fits: {early.item} would start before its command #{command.seq} or "
                f"{late.item} would be after #{heard.seq} heard of it, by "
                f"{offset.least_seconds - offset.most_seconds:.6f} s",
                (early, command, *_inputs(evidence, early), late, heard),
            )


def _inputs(evidence: Evidence, span: Span) -> tuple[Entry, ...]:
    """The last event that a span's command waited for: a span before its command is before that too."""
    events = [evidence.arrival(arc, source) for arc, source in evidence.sources(span.item)]
    known = [event for event in events if event is not None]
    return (max(known, key=lambda event: event.seq),) if known else ()


CLOCKS: tuple[Property, ...] = (spans_do_not_end_before_they_start, clocks_differ_by_a_constant)
