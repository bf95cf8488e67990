"""Lies about the weights that were read, made and moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from rpeg.ir import Freshness, Kind
from rpeg.plan import Item, ItemKind
from rpeg.trace import Span, Trace, What
from rpeg.verify import Evidence
from verify.lies import digest_of, moved, of_stretch, pick, reading, with_entries, with_span, with_spans


@of_stretch("versions_are_told")
def an_item_does_not_tell_what_it_read(trace: Trace, draw: Random) -> Trace | None:
    item = pick(draw, (e.item for e in Evidence(trace).commands.values() if e.versions))
    changed = with_entries(trace, lambda e: replace(e, versions={}) if e.item == item else e)
    return item and with_spans(changed, lambda s: replace(s, reads={}, digests={}) if s.item == item else s)


@of_stretch("versions_are_told")
def training_does_not_tell_what_it_made(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, (s for s in trace.spans if s.makes))
    return span and with_spans(
        trace, lambda s: replace(s, makes={}, digests={}) if s.item == span.item else s
    )


@of_stretch("versions_are_told")
def an_item_reads_a_model_that_it_does_not_call(trace: Trace, draw: Random) -> Trace | None:
    item = pick(draw, (e.item for e in Evidence(trace).commands.values() if e.what is What.LAUNCH))
    more = {"stranger": 0}
    changed = with_entries(
        trace,
        lambda e: replace(e, versions={**e.versions, **more}) if e.item == item and e.what.begins else e,
    )
    return item and with_spans(
        changed, lambda s: replace(s, reads={**s.reads, **more}) if s.item == item else s
    )


@of_stretch("reads_are_as_commanded")
def a_worker_reads_another_version_than_commanded(trace: Trace, draw: Random) -> Trace | None:
    commands = Evidence(trace).commands
    span = pick(draw, (s for s in trace.spans if s.reads and s.item in commands))
    if span is None:
        return None
    model = draw.choice(sorted(span.reads))
    changed = reading(trace, span.item, model, span.reads[model] + draw.choice([-1, 1, 2]))
    return replace(changed, entries=trace.entries)


def _readers(trace: Trace) -> Iterator[tuple[Item, str, int, Freshness]]:
    """(item, model, least version that its edge allows, freshness) of what reads over a weights edge."""
    evidence = Evidence(trace)
    for item, command in evidence.commands.items():
        if evidence.task(item) is None or item not in evidence.spans:
            continue
        run = item.kind is ItemKind.RUN
        edges = trace.plan.graph.weights_into(item.name) if run else trace.plan.graph.edges
        for edge in edges:
            if edge.model in command.versions and (run or edge.name == item.name):
                assert edge.model is not None
                bound, exact = edge.version_bound(item.step), edge.freshness is Freshness.EXACT
                yield item, edge.model, bound if exact else max(bound, trace.first_step), edge.freshness


@of_stretch("versions_are_within_bounds")
def an_item_reads_a_version_that_is_too_old(trace: Trace, draw: Random) -> Trace | None:
    found = pick(draw, (r for r in _readers(trace) if r[2] > 0))
    return found and reading(trace, found[0], found[1], found[2] - draw.randint(1, found[2]))


@of_stretch("versions_are_within_bounds")
def an_item_reads_a_version_of_the_future(trace: Trace, draw: Random) -> Trace | None:
    found = pick(draw, _readers(trace))
    return found and reading(
        trace, found[0], found[1], max(found[0].step, trace.first_step) + draw.randint(1, 3)
    )


@of_stretch("exact_edges_use_their_bound")
def an_exact_edge_gives_a_newer_version(trace: Trace, draw: Random) -> Trace | None:
    found = pick(draw, (r for r in _readers(trace) if r[3] is Freshness.EXACT))
    return found and reading(trace, found[0], found[1], found[2] + 1)


@of_stretch("training_makes_the_next_version")
def training_leaves_out_a_version(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, (s for s in trace.spans if s.makes))
    if span is None:
        return None
    model, by = draw.choice(sorted(span.makes)), draw.choice([-1, 1])
    old, new = span.makes[model], span.makes[model] + by

    def told(s: Span) -> Span:
        if s.item != span.item:
            return s
        digests = {k: d for k, d in s.digests.items() if k != f"{model}@{old}"}
        digests[f"{model}@{new}"] = digest_of(trace, model, new)
        return replace(s, makes={**s.makes, model: new}, digests=digests)

    return with_spans(trace, told)


@of_stretch("training_makes_the_next_version")
def training_begins_from_an_older_version(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    span = pick(draw, (s for s in trace.spans if s.makes and min(s.makes.values()) > 1))
    if span is None or evidence.kind(span.item) is not Kind.TRAIN:
        return None
    model = draw.choice(sorted(span.makes))
    return reading(trace, span.item, model, span.reads[model] - 1)


@of_stretch("versions_are_made_before_they_are_read")
def a_version_is_read_before_it_was_made(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    made = {
        (model, version): evidence.finished[s.item]
        for s in trace.spans
        for model, version in s.makes.items()
        if s.item in evidence.finished
    }
    pairs = [
        (made[pair], command)
        for command in evidence.commands.values()
        for pair in command.versions.items()
        if pair in made
    ]
    found = pick(draw, pairs)
    return found and moved(trace, found[0], after=found[1])


@of_stretch("weights_in_place_are_those_read")
def an_item_reads_what_its_memory_does_not_hold(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    command = pick(
        draw,
        (
            e
            for e in evidence.commands.values()
            if e.what is What.LAUNCH and e.versions and evidence.task(e.item)
        ),
    )
    if command is None:
        return None
    model = draw.choice(sorted(command.versions))
    version = command.versions[model]
    return reading(trace, command.item, model, draw.choice([version + 1, max(0, version - 1) or version + 2]))


@of_stretch("weights_in_place_are_those_read")
def a_copy_receives_another_version_than_is_read(trace: Trace, draw: Random) -> Trace | None:
    evidence = Evidence(trace)
    readers = [
        (copy.name, copy.model, command)
        for command in evidence.commands.values()
        if command.what is What.LAUNCH
        for model in command.versions
        if (copy := evidence.lowered.copy_for(command.item.name, model)) is not None
    ]
    found = pick(draw, readers)
    if found is None:
        return None
    name, model, command = found
    syncs = [
        e for e in evidence.commands.values()
        if e.what is What.SYNC and e.item.name == name and e.seq < command.seq and set(e.lanes) & set(command.lanes)
    ]  # fmt: skip
    if not syncs:
        return None
    last = max(syncs, key=lambda e: e.seq)
    return reading(trace, last.item, model, last.versions[model] + draw.choice([1, 2]))


@of_stretch("digests_agree")
def the_bytes_of_a_version_differ(trace: Trace, draw: Random) -> Trace | None:
    told: dict[str, int] = {}
    for span in trace.spans:
        for name in span.digests:
            told[name] = told.get(name, 0) + 1
    found = pick(draw, ((s, n) for s in trace.spans for n in s.digests if told[n] > 1))
    if found is None:
        return None
    span, name = found
    other = ("sim:" if trace.source == "simulated" else "") + "other bytes"
    return with_span(trace, span, digests={**span.digests, name: other})


@of_stretch("movements_are_digested")
def a_movement_tells_no_digest(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, (s for s in trace.spans if s.makes or (s.reads and s.item.kind is ItemKind.TRANSFER)))
    return span and with_span(trace, span, digests={})


@of_stretch("movements_are_digested")
def a_run_says_that_it_is_of_the_other_source(trace: Trace, draw: Random) -> Trace | None:
    if not any(s.digests for s in trace.spans):
        return None
    return replace(trace, source="real" if trace.source == "simulated" else "simulated")


@of_stretch("movements_are_digested")
def an_item_tells_thedigest_of_what_it_had_not(trace: Trace, draw: Random) -> Trace | None:
    span = pick(draw, trace.spans)
    more = {"actor@999": digest_of(trace, "actor", 999)}
    return span and with_span(trace, span, digests={**span.digests, **more})
