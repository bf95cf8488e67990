"""Lies in the driver's log, and about where items ran."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

from rpeg.plan import Item
from rpeg.trace import Trace, What
from rpeg.verify import Evidence
from verify.lies import moved, of_stretch, pick, relogged, with_entries, with_span, with_spans, without_span


@of_stretch("log_has_no_gaps")
def an_entry_is_lost(trace: Trace, draw: Random) -> Trace | None:
    if len(trace.entries) < 3:
        return None
    at = draw.randrange(1, len(trace.entries) - 1)
    return replace(trace, entries=trace.entries[:at] + trace.entries[at + 1 :])


@of_stretch("log_has_no_gaps")
def the_first_entries_are_lost(trace: Trace, draw: Random) -> Trace | None:
    return replace(trace, entries=trace.entries[2:]) if len(trace.entries) > 2 else None


@of_stretch("log_has_no_gaps")
def a_number_is_left_out(trace: Trace, draw: Random) -> Trace | None:
    if len(trace.entries) < 2:
        return None
    at = trace.entries[draw.randrange(1, len(trace.entries))].seq
    later = with_entries(trace, lambda e: replace(e, seq=e.seq + (e.seq >= at)))
    return with_spans(later, lambda s: replace(s, launch=s.launch + (s.launch >= at)))


@of_stretch("driver_clock_ascends")
def the_drivers_clock_goes_back(trace: Trace, draw: Random) -> Trace | None:
    pair = pick(draw, pairwise(trace.entries))
    if pair is None:
        return None
    back = pair[0].seconds - draw.uniform(1e-3, 10)
    return with_entries(trace, lambda e: replace(e, seconds=back) if e is pair[1] else e)


@of_stretch("driver_clock_ascends")
def a_time_is_no_number(trace: Trace, draw: Random) -> Trace | None:
    entry = pick(draw, trace.entries)
    return entry and with_entries(trace, lambda e: replace(e, seconds=float("nan")) if e is entry else e)


@of_stretch("events_follow_commands")
def an_end_is_told_before_its_command(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    item = pick(draw, evidence.finished)
    return item and moved(trace, evidence.finished[item], before=evidence.commands[item])


@of_stretch("events_follow_commands")
def a_command_is_not_told(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    item = pick(draw, evidence.finished)
    return item and relogged(trace, [e for e in trace.entries if e is not evidence.commands[item]])


@of_stretch("events_follow_commands")
def a_part_leaves_after_its_generators_end(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    part = pick(draw, (e for (item, _), e in evidence.produced.items() if item in evidence.finished))
    return part and moved(trace, part, after=evidence.finished[part.item])


@of_stretch("items_run_once")
def an_item_runs_again(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    item = pick(draw, evidence.finished)
    if item is None:
        return None
    last, late = trace.entries[-1], max(s.end_seconds for s in trace.spans) - trace.entries[0].seconds + 1
    again = [
        replace(e, seq=last.seq + i, seconds=last.seconds + late)
        for i, e in enumerate((evidence.commands[item], evidence.finished[item]), 1)
    ]
    spans = [
        replace(
            s, launch=again[0].seq, start_seconds=s.start_seconds + late, end_seconds=s.end_seconds + late
        )
        for s in evidence.spans[item]
    ]
    return replace(trace, entries=(*trace.entries, *again), spans=(*trace.spans, *spans))


@of_stretch("items_run_once")
def a_part_leaves_twice(trace: Trace, draw: Random) -> Trace | None:
    part = pick(draw, (e for e in trace.entries if e.what is What.PRODUCED))
    if part is None:
        return None
    at = trace.entries.index(part)
    return relogged(trace, [*trace.entries[: at + 1], part, *trace.entries[at + 1 :]])


def _renamed(trace: Trace, item: Item, name: Item) -> Trace:
    changed = with_entries(trace, lambda e: replace(e, item=name) if e.item == item else e)
    return with_spans(changed, lambda s: replace(s, item=name) if s.item == item else s)


@of_stretch("items_are_the_plans")
def an_item_is_one_that_the_plan_has_not(trace: Trace, draw: Random) -> Trace | None:
    item = pick(draw, Evidence(trace).commands)
    return item and _renamed(
        trace,
        item,
        draw.choice([replace(item, replica=77), replace(item, part=77), replace(item, name="nobody")]),
    )


@of_stretch("items_are_the_plans")
def an_item_runs_beyond_the_last_step(trace: Trace, draw: Random) -> Trace | None:
    item = pick(draw, Evidence(trace).commands)
    return item and _renamed(trace, item, replace(item, step=trace.steps + draw.randrange(1, 4)))


@of_stretch("items_are_the_plans")
def an_item_is_asked_for_by_another_command(trace: Trace, draw: Random) -> Trace | None:
    entry = pick(draw, Evidence(trace).commands.values())
    verbs = [What.LAUNCH, What.SYNC, What.RELOAD, What.OFFLOAD]
    return entry and with_entries(
        trace,
        lambda e: (
            replace(e, what=draw.choice([v for v in verbs if v is not entry.what])) if e is entry else e
        ),
    )


@of_stretch("every_item_ran")
def an_item_never_ran(trace: Trace, draw: Random) -> Trace | None:
    item = pick(draw, Evidence(trace).finished)
    if item is None or not trace.complete:
        return None
    changed = relogged(trace, [e for e in trace.entries if e.item != item])
    return replace(changed, spans=tuple(s for s in changed.spans if s.item != item))


@of_stretch("every_item_ran")
def an_item_never_finished(trace: Trace, draw: Random) -> Trace | None:
    end = pick(draw, Evidence(trace).finished.values())
    return relogged(trace, [e for e in trace.entries if e is not end]) if end and trace.complete else None


@of_stretch("every_item_ran")
def an_item_failed_in_a_run_that_came_to_its_end(trace: Trace, draw: Random) -> Trace | None:
    end = pick(draw, Evidence(trace).finished.values())
    if end is None or not trace.complete:
        return None
    return with_entries(trace, lambda e: replace(e, what=What.FAILED, error="killed") if e is end else e)


@of_stretch("every_part_left")
def a_part_never_left(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    part = pick(draw, (e for (item, _), e in evidence.produced.items() if item in evidence.finished))
    return part and relogged(trace, [e for e in trace.entries if e is not part])


@of_stretch("every_part_left")
def a_part_left_that_is_not_owed(trace: Trace, draw: Random) -> Trace | None:
    part = pick(draw, (e for e in trace.entries if e.what is What.PRODUCED))
    return part and with_entries(trace, lambda e: replace(e, part=(e.part or 0) + 500) if e is part else e)


def _elsewhere(trace: Trace, item: Item, draw: Random) -> str:
    """A lane that an item is not planned on."""
    task = Evidence(trace).task(item)
    others = [lane.name for lane in trace.plan.order if task is None or lane.name not in task.lanes]
    return draw.choice(others) if others else "device99"


@of_stretch("commands_name_the_planned_lanes")
def an_item_is_commanded_elsewhere(trace: Trace, draw: Random) -> Trace | None:
    entry = pick(draw, Evidence(trace).commands.values())
    if entry is None:
        return None
    lanes = draw.choice([(*entry.lanes[1:], _elsewhere(trace, entry.item, draw)), entry.lanes[1:]])
    return with_entries(trace, lambda e: replace(e, lanes=lanes) if e is entry else e)


@of_stretch("spans_are_on_planned_lanes")
def an_item_ran_elsewhere(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, trace.spans)
    if span is None:
        return None
    lane = _elsewhere(trace, span.item, draw)
    worker = next((s.worker for s in trace.spans if s.lane == lane), lane)
    return with_span(trace, span, lane=lane, worker=worker)


@of_stretch("spans_are_on_planned_lanes")
def an_item_was_commanded_and_ran_elsewhere(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, trace.spans)
    if span is None:
        return None
    lane = _elsewhere(trace, span.item, draw)
    worker = next((s.worker for s in trace.spans if s.lane == lane), lane)
    changed = with_span(trace, span, lane=lane, worker=worker)
    return with_entries(
        changed,
        lambda e: replace(e, lanes=tuple(lane if n == span.lane else n for n in e.lanes))
        if e.item == span.item and e.what.begins else e,
    )  # fmt: skip


@of_stretch("spans_answer_their_commands")
def a_span_answers_another_command(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, trace.spans)
    others = [e.seq for e in trace.entries if e.what.begins and span and e.item != span.item]
    return with_span(trace, span, launch=draw.choice(others)) if span and others else None


@of_stretch("spans_answer_their_commands")
def an_item_ran_uncommanded(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, trace.spans)
    if span is None:
        return None
    entries = [e for e in trace.entries if e.item != span.item]
    return relogged(trace, entries)


@of_stretch("every_lane_has_its_span")
def a_lane_of_an_item_tells_nothing(trace: Trace, draw: Random) -> Trace | None:
    finished = Evidence(trace).finished
    span = pick(draw, (s for s in trace.spans if s.item in finished))
    return span and without_span(trace, span)


@of_stretch("every_lane_has_its_span")
def a_lane_of_an_item_tells_twice(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, trace.spans)
    return span and replace(trace, spans=(*trace.spans, span))


@of_stretch("lanes_have_one_worker")
def a_lane_goes_over_to_another_worker(trace: Trace, draw: Random) -> Trace | None:
    lane = pick(draw, (lane for lane, spans in Evidence(trace).spans_of_lane.items() if len(spans) > 1))
    if lane is None:
        return None
    spans = sorted((s for s in trace.spans if s.lane == lane), key=lambda s: s.launch)
    late = spans[draw.randrange(1, len(spans)) :]
    return with_spans(trace, lambda s: replace(s, worker="another") if any(s is x for x in late) else s)
