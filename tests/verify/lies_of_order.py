"""Lies about what came before what, by the log and by the workers' clocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from random import Random

from rpeg.trace import Entry, Span, Trace
from rpeg.verify import Evidence, clock_offsets
from verify.lies import moved, of_stretch, pick, with_span, with_spans, without_span


def _dependencies(evidence: Evidence) -> Iterator[tuple[Entry, Entry]]:
    """(the event that an item waited for, the item's command)."""
    for item, command in evidence.commands.items():
        for arc, source in evidence.sources(item):
            event = evidence.arrival(arc, source)
            if event is not None and not arc.if_members:
                yield event, command


@of_stretch("inputs_precede_commands")
def an_item_is_commanded_before_its_input(trace: Trace, draw: Random) -> Trace | None:
    found = pick(draw, _dependencies(Evidence(trace)))
    return found and moved(trace, found[1], before=found[0])


@of_stretch("inputs_precede_commands")
def an_input_came_after_its_readers_command(trace: Trace, draw: Random) -> Trace | None:
    found = pick(draw, _dependencies(Evidence(trace)))
    return found and moved(trace, found[0], after=found[1])


@of_stretch("spans_follow_their_inputs")
def an_item_started_before_its_input_ended(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    pairs = [
        (before, span)
        for item, spans in evidence.spans.items()
        for arc, source in evidence.sources(item)
        if arc.part is None
        for span in spans
        for before in evidence.spans.get(source, ())
        if before.worker == span.worker
    ]
    found = pick(draw, pairs)
    if found is None:
        return None
    start = found[0].end_seconds - draw.uniform(1e-3, 1)
    return with_span(trace, found[1], start_seconds=start, end_seconds=start + found[1].seconds)


def _successors(evidence: Evidence) -> Iterator[tuple[Entry, Entry]]:
    """Commands of which the second follows on a lane of the first."""
    for turns in evidence.turn_of.values():
        commands = [evidence.commands[item] for item in turns if item in evidence.commands]
        yield from ((a, b) for a, b in pairwise(commands) if a.item in evidence.finished)


@of_stretch("commands_keep_the_lane_order")
def an_item_is_commanded_while_its_lane_is_taken(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    found = pick(draw, _successors(evidence))
    return found and moved(trace, found[1], before=evidence.finished[found[0].item])


@of_stretch("commands_keep_the_lane_order")
def an_item_overtakes_another(trace: Trace, draw: Random) -> Trace | None:
    found = pick(draw, _successors(Evidence(trace)))
    return found and moved(trace, found[1], before=found[0])


def _neighbours(evidence: Evidence) -> Iterator[tuple[Span, Span]]:
    for lane, spans in evidence.spans_of_lane.items():
        turns = evidence.turn_of.get(lane, {})
        yield from pairwise([s for s in spans if s.item in turns])


@of_stretch("lanes_keep_the_order")
def two_spans_of_a_lane_change_places(trace: Trace, draw: Random) -> Trace | None:
    found = pick(draw, ((a, b) for a, b in _neighbours(Evidence(trace)) if a.start_seconds < b.start_seconds))
    if found is None:
        return None
    first, second = found
    changed = with_span(trace, first, start_seconds=second.start_seconds, end_seconds=second.end_seconds)
    return with_span(changed, second, start_seconds=first.start_seconds, end_seconds=first.end_seconds)


@of_stretch("lanes_run_one_thing_at_a_time")
def a_span_reaches_into_the_next(trace: Trace, draw: Random) -> Trace | None:
    # what takes no time overlaps with nothing
    found = pick(draw, ((a, b) for a, b in _neighbours(Evidence(trace)) if b.seconds > 1e-3))
    if found is None:
        return None
    return with_span(trace, found[0], end_seconds=found[1].start_seconds + draw.uniform(1e-3, 1))


@of_stretch("spans_do_not_end_before_they_start")
def a_span_ends_before_it_starts(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, trace.spans)
    end = span.start_seconds - draw.uniform(1e-6, 5) if span else 0.0
    return span and with_span(trace, span, end_seconds=draw.choice([end, float("nan")]))


@of_stretch("clocks_differ_by_a_constant")
def a_span_is_out_of_its_workers_clock(trace: Trace, draw: Random) -> Trace | None:
    """Before its command, or after its end was heard, by what all other spans of the worker say of its clock."""
    evidence = Evidence(trace)
    span = pick(draw, (s for s in trace.spans if s.item in evidence.finished))
    if span is None:
        return None
    offset = clock_offsets(without_span(trace, span)).get(span.worker)
    if offset is None or not (isfinite(offset.least_seconds) and isfinite(offset.most_seconds)):
        return None
    start = evidence.commands[span.item].seconds - offset.most_seconds - draw.uniform(1e-3, 1)
    if draw.random() < 0.5:
        start = evidence.finished[span.item].seconds - offset.least_seconds + draw.uniform(1e-3, 1)
    return with_span(trace, span, start_seconds=start, end_seconds=start + span.seconds)


@of_stretch("clocks_differ_by_a_constant")
def a_workers_clock_is_set(trace: Trace, draw: Random) -> Trace | None:
    """From some span on it is ahead, or behind, by more than the messages leave open."""
    worker = pick(draw, (w for w, spans in Evidence(trace).spans_of_worker.items() if len(spans) > 1))
    spans = sorted((s for s in trace.spans if s.worker == worker), key=lambda s: s.launch)
    if worker is None:
        return None
    cut = spans[draw.randrange(1, len(spans))].launch
    early, late = (
        clock_offsets(replace(trace, spans=tuple(s for s in spans if (s.launch >= cut) is side)))[worker]
        for side in (False, True)
    )
    jump = late.most_seconds - early.least_seconds + draw.uniform(1e-3, 1)
    if draw.random() < 0.5:
        jump = late.least_seconds - early.most_seconds - draw.uniform(1e-3, 1)
    if not isfinite(jump):
        return None
    return with_spans(
        trace,
        lambda s: replace(s, start_seconds=s.start_seconds + jump, end_seconds=s.end_seconds + jump)
        if s.worker == worker and s.launch >= cut else s,
    )  # fmt: skip
