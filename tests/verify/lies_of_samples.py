"""Lies in the ledger of samples, about memory and about what rests in host memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

from rpeg.ir import Kind
from rpeg.plan import ItemKind
from rpeg.trace import Entry, Span, Trace, What
from rpeg.verify import Evidence
from verify.lies import (
    ASSESS,
    of_stretch,
    pick,
    verdicts,
    with_entries,
    with_ids,
    with_span,
    without,
    without_span,
    work_of,
)


def _told_by_several(trace: Trace) -> Iterator[tuple[Span, Span]]:
    """Spans of lanes that hold shards of one model replica, which both tell their samples."""
    evidence = Evidence(trace)
    for command in work_of(trace):
        item, task = command.item, evidence.task(command.item)
        if task is None:
            continue
        by_lane = {s.lane: s for s in evidence.spans[item]}
        for cell in evidence.lowered.held.cells(trace.plan.assignment(item.name), task.lanes):
            told = [by_lane[lane] for lane in cell.lanes if lane in by_lane and by_lane[lane].ids]
            yield from pairwise(told)


@of_stretch("ranks_work_on_one_share")
def a_shard_works_on_other_samples(trace: Trace, draw: Random) -> Trace | None:
    found = pick(draw, _told_by_several(trace))
    if found is None:
        return None
    ids = found[1].ids
    return with_span(trace, found[1], ids=draw.choice([(*ids, ids[0]), (*ids[1:], ids[0] + 1000)]))


def _whole_work_of(trace: Trace) -> list[Entry]:
    """Without generators that leave the last of what they were asked for to another item."""
    tasks = Evidence(trace).lowered.tasks
    return [e for e in work_of(trace) if e.item.slot in tasks and not tasks[e.item.slot].hands_over]


@of_stretch("items_work_on_their_samples")
def an_item_leaves_out_a_sample_of_its_command(trace: Trace, draw: Random) -> Trace | None:
    command = pick(draw, _whole_work_of(trace))
    if command is None:
        return None
    sample = draw.choice(command.ids)
    changed = with_ids(trace, lambda item, ids: without(ids, sample) if item == command.item else ids)
    return replace(changed, entries=trace.entries)


@of_stretch("items_work_on_their_samples")
def a_command_names_a_sample_that_was_not_worked_on(trace: Trace, draw: Random) -> Trace | None:
    command = pick(draw, _whole_work_of(trace))
    return command and with_entries(
        trace, lambda e: replace(e, ids=(*e.ids, e.ids[0] + 1)) if e is command else e
    )


@of_stretch("items_work_on_their_samples")
def an_idle_item_is_given_samples(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    idle = (
        e for e in evidence.commands.values() if (t := evidence.task(e.item)) is not None and not t.covers
    )
    command = pick(draw, idle)
    return command and with_entries(trace, lambda e: replace(e, ids=(0, 1)) if e is command else e)


@of_stretch("samples_belong_to_their_step")
def an_item_works_on_another_steps_sample(trace: Trace, draw: Random) -> Trace | None:
    command = pick(draw, work_of(trace))
    if command is None:
        return None
    sample, far = draw.choice(command.ids), 2 * trace.plan.workload.asked
    by = far if sample < far or draw.random() < 0.5 else -far
    return with_ids(
        trace,
        lambda item, ids: tuple(i + by if i == sample else i for i in ids) if item == command.item else ids,
    )


@of_stretch("tokens_are_those_of_the_samples")
def a_sample_has_no_token(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, (s for s in trace.spans if s.ids))
    return span and with_span(trace, span, tokens=len(span.ids) - 1)


@of_stretch("tokens_are_those_of_the_samples")
def there_are_tokens_of_no_samples(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, (s for s in trace.spans if s.item.kind is not ItemKind.RUN))
    return span and with_span(trace, span, tokens=draw.randint(1, 10**6))


@of_stretch("tokens_are_those_of_the_samples")
def the_same_samples_have_more_tokens(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    graph, seen, found = trace.plan.graph, set(), []
    for span in sorted(trace.spans, key=lambda s: s.launch):
        sources = graph.generators_of(span.item.name) if span.item.kind is ItemKind.RUN else ()
        if not span.ids or evidence.kind(span.item) is Kind.GENERATE or len(sources) != 1:
            continue
        key = span.item.step, sources, tuple(sorted(span.ids))
        if key in seen:
            found.append(span)
        seen.add(key)
    span = pick(draw, found)
    return span and with_span(trace, span, tokens=span.tokens + draw.randint(1, 50))


@of_stretch("each_sample_is_generated_once")
def a_prompt_is_never_answered(trace: Trace, draw: Random) -> Trace | None:
    """Nobody ever tells of a sample."""
    command = pick(draw, work_of(trace, Kind.GENERATE))
    if command is None or not Evidence(trace).lowered.tasks[command.item.slot].covers:
        return None
    accepted = {i for e in verdicts(trace, What.PRODUCED) for i in e.ids}  # a quota would show that they lack
    sample = pick(draw, set(command.ids) - accepted)
    if sample is None:
        return None
    changed = with_ids(trace, lambda item, ids: without(ids, sample))
    return with_entries(changed, lambda e: replace(e, ids=without(e.ids, sample)))


@of_stretch("each_sample_is_generated_once")
def a_prompt_is_answered_twice(trace: Trace, draw: Random) -> Trace | None:
    command = pick(draw, work_of(trace, Kind.GENERATE))
    if command is None:
        return None
    sample = draw.choice([i for s in trace.spans if s.item == command.item for i in s.ids])
    return with_ids(
        trace, lambda item, ids: (*ids, sample) if item == command.item and sample in ids else ids
    )


def _dropped(trace: Trace, draw: Random, *kinds: Kind) -> Trace | None:
    command = pick(draw, work_of(trace, *kinds))
    if command is None:
        return None
    sample = draw.choice(command.ids)
    return with_ids(trace, lambda item, ids: without(ids, sample) if item == command.item else ids)


def _doubled(trace: Trace, draw: Random, *kinds: Kind) -> Trace | None:
    """Worked on twice by an item, or by two items of a stage."""
    works = work_of(trace, *kinds)
    command = pick(draw, works)
    if command is None:
        return None
    peers = [e for e in works if (e.item.name, e.item.step) == (command.item.name, command.item.step)]
    other, sample = draw.choice(peers), draw.choice(command.ids)

    # one of a gang's ranks, or all lanes of one that is alone
    span = next(s for s in trace.spans if s.item == other.item and s.ids)
    mine = set(span.ids)
    return with_ids(
        trace,
        lambda item, ids: (*ids, sample) if item == other.item and (mine == set(ids) or len(ids) == len(other.ids))
        else ids,
    )  # fmt: skip


@of_stretch("each_sample_is_assessed_once")
def a_sample_is_never_assessed(trace: Trace, draw: Random) -> Trace | None:
    return _dropped(trace, draw, *ASSESS)


@of_stretch("each_sample_is_assessed_once")
def a_sample_is_assessed_twice(trace: Trace, draw: Random) -> Trace | None:
    return _doubled(trace, draw, *ASSESS)


@of_stretch("each_sample_is_trained_once")
def a_sample_is_never_trained(trace: Trace, draw: Random) -> Trace | None:
    return _dropped(trace, draw, Kind.TRAIN)


@of_stretch("each_sample_is_trained_once")
def a_sample_is_trained_twice(trace: Trace, draw: Random) -> Trace | None:
    return _doubled(trace, draw, Kind.TRAIN)


@of_stretch("each_sample_is_trained_once")
def a_sample_is_trained_in_anothers_place(trace: Trace, draw: Random) -> Trace | None:
    command = pick(draw, (e for e in work_of(trace, Kind.TRAIN) if len(e.ids) > 1))
    if command is None:
        return None
    lost, again = draw.sample(command.ids, 2)
    return with_ids(
        trace,
        lambda item, ids: tuple(again if i == lost else i for i in ids) if item == command.item else ids,
    )


@of_stretch("memory_is_within_the_device")
def a_process_held_more_than_its_device(trace: Trace, draw: Random) -> Trace | None:
    cluster, devices = trace.plan.cluster, Evidence(trace).lowered.held.devices
    sizes = {lane: cluster.device(ids[0]).kind.usable_memory_bytes for lane, ids in devices.items()}
    span = pick(draw, (s for s in trace.spans if sizes.get(s.lane)))
    return span and with_span(trace, span, memory_bytes=sizes[span.lane] + draw.randint(1, 2**20))


@of_stretch("what_rests_is_there_when_used")
def what_rests_is_never_brought(trace: Trace, draw: Random) -> Trace | None:
    """A reload that a lane tells nothing of, though it goes on to use or to take away what was to come."""
    found = []
    for spans in Evidence(trace).spans_of_lane.values():
        for i, span in enumerate(spans):
            later = (s for s in spans[i + 1 :] if s.item.name == span.item.name)
            if span.item.kind is ItemKind.RELOAD and any(s.item.kind is ItemKind.OFFLOAD for s in later):
                found.append(span)
    span = pick(draw, found)
    return span and without_span(trace, span)


@of_stretch("what_rests_is_there_when_used")
def what_rests_is_used_before_it_comes(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    rests = {rest.name: rest for rest in evidence.lowered.rests}
    found = []
    for spans in evidence.spans_of_lane.values():
        for i, span in enumerate(spans):
            if span.item.kind is ItemKind.RELOAD:
                used = next((s for s in spans[i + 1 :] if rests[span.item.name].uses(s.item.slot)), None)
                if used is not None and used.start_seconds > span.start_seconds:
                    found.append((span, used))
    pair = pick(draw, found)
    if pair is None:
        return None
    reload, used = pair
    late = used.start_seconds + max(used.seconds, 1e-3) / 2
    return with_span(trace, reload, start_seconds=late, end_seconds=late + reload.seconds)


@of_stretch("plan_can_run")
def the_plan_lacks_a_lane(trace: Trace, draw: Random) -> Trace | None:
    at = draw.randrange(len(trace.plan.order))
    order = trace.plan.order[:at] + trace.plan.order[at + 1 :]
    return replace(trace, plan=replace(trace.plan, order=order))
