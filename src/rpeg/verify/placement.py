"""Items ran where the plan put them, and workers and driver tell the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rpeg.trace import Span
from rpeg.verify.evidence import Breach, Evidence, Property


def commands_name_the_planned_lanes(evidence: Evidence) -> Iterator[Breach]:
    for item, entry in evidence.commands.items():
        task = evidence.task(item)
        if task is not None and set(entry.lanes) != set(task.lanes):
            planned, named = ", ".join(task.lanes), ", ".join(entry.lanes) or "none"
            yield f"{item} is planned on {planned} and commanded on {named}", (entry,)


def spans_are_on_planned_lanes(evidence: Evidence) -> Iterator[Breach]:
    for span in evidence.trace.spans:
        task = evidence.task(span.item)
        if task is not None and span.lane not in task.lanes:
            yield f"{span.item} ran on {span.lane} and is planned on {', '.join(task.lanes)}", (span,)


def spans_answer_their_commands(evidence: Evidence) -> Iterator[Breach]:
    for span in evidence.trace.spans:
        command = evidence.commands.get(span.item)
        if command is None:
            yield f"{span.item} ran on {span.lane} and was never commanded", (span,)
        elif span.launch != command.seq:
            yield f"{span.item} ran for #{span.launch}; its command is #{command.seq}", (span, command)


def every_lane_has_its_span(evidence: Evidence) -> Iterator[Breach]:
    """One span a lane of each item that finished; at most one of an item that did not."""
    for item, command in evidence.commands.items():
        task = evidence.task(item)
        spans = evidence.spans.get(item, ())
        counts = Counter(span.lane for span in spans)
        if task is None:
            continue
        for lane in task.lanes:
            if counts[lane] > 1:
                yield (
                    f"{item} has {counts[lane]} spans on {lane}",
                    tuple(s for s in spans if s.lane == lane),
                )
            elif not counts[lane] and item in evidence.finished:
                yield f"{item} finished without a span on {lane}", (command, evidence.finished[item])


def lanes_have_one_worker(evidence: Evidence) -> Iterator[Breach]:
    """Only then does one clock order what ran on a lane."""
    first: dict[str, Span] = {}
    for span in evidence.trace.spans:
        other = first.setdefault(span.lane, span)
        if other.worker != span.worker:
            yield f"lane {span.lane} was served by {other.worker} and by {span.worker}", (other, span)


PLACEMENT: tuple[Property, ...] = (
    commands_name_the_planned_lanes,
    spans_are_on_planned_lanes,
    spans_answer_their_commands,
    every_lane_has_its_span,
    lanes_have_one_worker,
)
