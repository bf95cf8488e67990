"""Lies about which samples an item takes, and about which are accepted."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from rpeg.ir import Kind
from rpeg.plan import Item, Minibatches
from rpeg.trace import OVER_QUOTA, Entry, Trace, What
from rpeg.verify import Evidence
from verify.lies import ASSESS, instead, of_stretch, pick, verdicts, with_entries, with_ids, without, work_of


@of_stretch("commands_name_the_planned_parts")
def an_item_is_commanded_for_other_parts(trace: Trace, draw: Random) -> Trace | None:
    commands = Evidence(trace).commands
    entry = pick(draw, (e for e in commands.values() if e.what is What.LAUNCH))
    if entry is None:
        return None
    parts = draw.choice([(*entry.parts, 77), entry.parts[1:] if entry.parts else (0,)])
    return with_entries(trace, lambda e: replace(e, parts=parts) if e is entry else e)


@of_stretch("generators_are_asked_for_their_prompts")
def two_generators_exchange_a_prompt(trace: Trace, draw: Random) -> Trace | None:
    works = work_of(trace, Kind.GENERATE)
    pairs = (
        (a, b)
        for a in works
        for b in works
        if (a.item.name, a.item.step) == (b.item.name, b.item.step) and set(a.ids).isdisjoint(b.ids)
    )
    found = pick(draw, pairs)
    if found is None:
        return None
    one, other = draw.choice(found[0].ids), draw.choice(found[1].ids)
    items = {found[0].item, found[1].item}
    changed = with_ids(trace, lambda item, ids: instead(ids, one, other) if item in items else ids)
    return with_entries(
        changed,
        lambda e: replace(e, ids=instead(e.ids, one, other))
        if e.item in items and e.what is What.PRODUCED else e,
    )  # fmt: skip


@of_stretch("generators_are_asked_for_their_prompts")
def a_generator_is_asked_for_a_prompt_less(trace: Trace, draw: Random) -> Trace | None:
    command = pick(draw, work_of(trace, Kind.GENERATE))
    return command and with_entries(trace, lambda e: replace(e, ids=e.ids[1:]) if e is command else e)


def _left(trace: Trace) -> list[Entry]:
    """The parts that left generators which have finished."""
    evidence = Evidence(trace)
    generates = (Kind.GENERATE,)
    return [
        e for (item, _), e in evidence.produced.items()
        if item in evidence.finished and item in evidence.spans and evidence.kind(item) in generates and e.ids
    ]  # fmt: skip


@of_stretch("parts_hold_what_was_generated")
def a_part_lacks_a_sample(trace: Trace, draw: Random) -> Trace | None:
    part = pick(draw, _left(trace))
    return part and with_entries(trace, lambda e: replace(e, ids=e.ids[1:]) if e is part else e)


@of_stretch("parts_hold_what_was_generated")
def a_part_holds_a_sample_that_was_not_generated(trace: Trace, draw: Random) -> Trace | None:
    part = pick(draw, _left(trace))
    stranger = draw.choice([10**6, part.ids[0] + 10**4]) if part else 0
    return part and with_entries(trace, lambda e: replace(e, ids=(*e.ids[1:], stranger)) if e is part else e)


@of_stretch("parts_hold_what_was_generated")
def a_sample_left_in_another_part(trace: Trace, draw: Random) -> Trace | None:
    """Two parts of a generator, one with a sample of the other's: neither has its planned size."""
    left = _left(trace)
    found = pick(draw, ((a, b) for a in left for b in left if a.item == b.item and a.part != b.part))
    if found is None:
        return None
    gives, takes = found
    new = {id(gives): gives.ids[1:], id(takes): (*takes.ids, gives.ids[0])}
    return with_entries(trace, lambda e: replace(e, ids=new.get(id(e), e.ids)))


def _of_stream(trace: Trace) -> list[Entry]:
    evidence = Evidence(trace)
    return [
        e for e in work_of(trace, *ASSESS, Kind.TRAIN)
        if (task := evidence.task(e.item)) is not None and task.members is None
    ]  # fmt: skip


@of_stretch("streamed_parts_are_inherited")
def two_items_of_a_stream_exchange_samples(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    works = _of_stream(trace)
    pairs = [
        (a, b)
        for a in works
        for b in works
        if (a.item.name, a.item.step) == (b.item.name, b.item.step) and set(a.parts).isdisjoint(b.parts)
        and not _rounds(evidence, a.item)
    ]  # fmt: skip
    found = pick(draw, pairs)
    if found is None:
        return None
    one, other = found[0].ids[0], found[1].ids[0]
    items = {found[0].item, found[1].item}
    return with_ids(trace, lambda item, ids: instead(ids, one, other) if item in items else ids)


@of_stretch("streamed_parts_are_inherited")
def an_item_takes_no_notice_of_a_sample(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    alone = (e for e in _of_stream(trace) if (t := evidence.task(e.item)) is not None and t.share[1] == 1)
    command = pick(draw, alone)
    if command is None:
        return None
    sample = draw.choice(command.ids)
    return with_ids(trace, lambda item, ids: without(ids, sample) if item == command.item else ids)


def _rounds(evidence: Evidence, item: Item) -> bool:
    return item.name in evidence.trace.plan.graph.rounds


@of_stretch("fixed_parts_hold_their_members")
def two_parts_exchange_a_sample(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    works = [e for e in work_of(trace) if (t := evidence.task(e.item)) is not None and t.members is not None]
    if trace.seed is None:  # who is in which minibatch is then not known
        works = [e for e in works if not isinstance(evidence.lowered.tasks[e.item.slot].members, Minibatches)]
    pairs = [
        (a, b) for a in works for b in works
        if (a.item.name, a.item.step) == (b.item.name, b.item.step) and a.item.part != b.item.part
    ]  # fmt: skip
    found = pick(draw, pairs)
    if found is None:
        return None
    one, other = found[0].ids[0], found[1].ids[0]
    items = {found[0].item, found[1].item}
    return with_ids(trace, lambda item, ids: instead(ids, one, other) if item in items else ids)


@of_stretch("every_candidate_is_judged_once")
def a_group_is_not_judged(trace: Trace, draw: Random) -> Trace | None:
    finished = Evidence(trace).finished
    verdict = pick(draw, (e for e in verdicts(trace, What.REJECTED) if e.item in finished))
    each = trace.plan.workload.samples_per_prompt
    return verdict and with_entries(trace, lambda e: replace(e, ids=e.ids[each:]) if e is verdict else e)


@of_stretch("every_candidate_is_judged_once")
def a_group_is_judged_twice(trace: Trace, draw: Random) -> Trace | None:
    finished = Evidence(trace).finished
    yes, no = verdicts(trace, What.PRODUCED), verdicts(trace, What.REJECTED)
    found = pick(draw, ((a, b) for a in yes for b in no if a.item == b.item and a.item in finished))
    if found is None:
        return None
    group = found[0].ids[: trace.plan.workload.samples_per_prompt]
    return with_entries(trace, lambda e: replace(e, ids=(*e.ids, *group)) if e is found[1] else e)


@of_stretch("groups_are_accepted_whole")
def half_a_group_is_accepted(trace: Trace, draw: Random) -> Trace | None:
    each = trace.plan.workload.samples_per_prompt
    yes, no = verdicts(trace, What.PRODUCED), verdicts(trace, What.REJECTED)
    found = pick(draw, ((a, b) for a in yes for b in no if a.item == b.item))
    if found is None or each < 2:
        return None
    one, other = found[0].ids[0], found[1].ids[0]
    return with_entries(trace, lambda e: replace(e, ids=instead(e.ids, one, other)) if e in found else e)


@of_stretch("accepted_are_the_first")
def a_later_prompt_is_preferred(trace: Trace, draw: Random) -> Trace | None:
    each = trace.plan.workload.samples_per_prompt
    over = [*verdicts(trace, What.REJECTED, OVER_QUOTA), *verdicts(trace, What.KEPT)]
    found = pick(
        draw,
        (
            (a, b)
            for a in verdicts(trace, What.PRODUCED)
            for b in over
            if a.item == b.item and min(b.ids) > min(a.ids)
        ),
    )
    if found is None:
        return None
    first, late = sorted(found[0].ids)[:each], sorted(found[1].ids)[:each]
    other = dict(zip((*first, *late), (*late, *first), strict=True))
    rounds = trace.plan.graph.rounds

    def told(item: Item, ids: tuple[int, ...]) -> tuple[int, ...]:
        later = item.step == found[0].item.step and item.name not in rounds
        return tuple(other.get(i, i) for i in ids) if later else ids

    changed = with_entries(
        trace, lambda e: replace(e, ids=tuple(other.get(i, i) for i in e.ids)) if e in found else e
    )
    return with_ids(changed, told)


@of_stretch("rounds_end_when_the_quota_is_filled")
def a_selector_is_told_a_wrong_quota(trace: Trace, draw: Random) -> Trace | None:
    selector = trace.plan.graph.selector
    entry = pick(
        draw,
        (e for e in trace.entries if e.what is What.LAUNCH and selector and e.item.name == selector.name),
    )
    return entry and with_entries(
        trace, lambda e: replace(e, wanted=e.wanted + draw.choice([-1, 1, 2])) if e is entry else e
    )


@of_stretch("rounds_end_when_the_quota_is_filled")
def a_round_runs_that_nobody_needed(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    passed = [
        slot.at(step)
        for step in range(trace.first_step, trace.steps)
        for slot in evidence.lowered.tasks
        if evidence.is_passed(slot.at(step))
    ]
    item = pick(draw, passed)
    if item is None:
        return None
    last = trace.entries[-1]
    lanes = evidence.lowered.tasks[item.slot].lanes
    extra = Entry(last.seq + 1, last.seconds, What.LAUNCH, item, lanes)
    return replace(trace, entries=(*trace.entries, extra))
