"""No single change of a sound trace goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import PLANS, run
from rpeg.trace import Entry, Span, Trace, What
from rpeg.verify import prove

SpanChange = Callable[[Span], Span]
EntryChange = Callable[[Entry], Entry]


def _next(versions: Mapping[str, int]) -> dict[str, int]:
    return {model: version + 1 for model, version in versions.items()}


SPAN_CHANGES: Mapping[str, SpanChange] = {
    "lane": lambda s: replace(s, lane="device7"),
    "worker": lambda s: replace(s, worker="another"),
    "step": lambda s: replace(s, item=replace(s.item, step=s.item.step + 1)),
    "part": lambda s: replace(s, item=replace(s.item, part=99)),
    "command": lambda s: replace(s, launch=s.launch + 1),
    "earlier": lambda s: replace(s, start_seconds=s.start_seconds - 1, end_seconds=s.end_seconds - 1),
    "later": lambda s: replace(s, start_seconds=s.start_seconds + 1, end_seconds=s.end_seconds + 1),
    "longer": lambda s: replace(s, end_seconds=s.end_seconds + 1),
    "reads": lambda s: replace(s, reads=_next(s.reads)),
    "makes": lambda s: replace(s, makes=_next(s.makes)),
    "reads nothing": lambda s: replace(s, reads={}),
    "makes nothing": lambda s: replace(s, makes={}),
    "digests nothing": lambda s: replace(s, digests={}),
    "lacks a sample": lambda s: replace(s, ids=s.ids[:-1]),
    "lacks all but one": lambda s: replace(s, ids=s.ids[:1]),
    "doubles a sample": lambda s: replace(s, ids=s.ids + s.ids[:1]),
    "takes another's": lambda s: replace(s, ids=tuple(i + 8 for i in s.ids)),
    "memory": lambda s: replace(s, memory_bytes=s.memory_bytes * (4 if s.lane.startswith("device") else 1)),
}

ENTRY_CHANGES: Mapping[str, EntryChange] = {
    "number": lambda e: replace(e, seq=e.seq + 1),
    "much earlier": lambda e: replace(e, seconds=e.seconds - 1e3),
    "step": lambda e: replace(e, item=replace(e.item, step=e.item.step + 1)),
    "replica": lambda e: replace(e, item=replace(e.item, replica=e.item.replica + 1)),
    "no lanes": lambda e: replace(e, lanes=()),
    "another's lane": lambda e: replace(e, lanes=("device7",) * len(e.lanes)),
    "versions": lambda e: replace(e, versions=_next(e.versions)),
    "no versions": lambda e: replace(e, versions={}),
    "another part": lambda e: replace(e, part=None if e.part is None else e.part + 1),
    "lacks a sample": lambda e: replace(e, ids=e.ids[:-1]),
    "doubles a sample": lambda e: replace(e, ids=e.ids + e.ids[:1]),
    "failed": lambda e: replace(e, what=What.FAILED),
}


@cache
def sound(name: str) -> Trace:
    return run(PLANS[name](), 3)


def changed_span(trace: Trace, index: int, change: SpanChange) -> Trace:
    spans = list(trace.spans)
    spans[index] = change(spans[index])
    return replace(trace, spans=tuple(spans))


def changed_entry(trace: Trace, index: int, change: EntryChange) -> Trace:
    entries = list(trace.entries)
    entries[index] = change(entries[index])
    return replace(trace, entries=tuple(entries))


@pytest.mark.parametrize("name", sorted(PLANS))
@given(data=st.data(), change=st.sampled_from(sorted(SPAN_CHANGES)))
@settings(max_examples=25, deadline=None)
def test_any_change_of_a_span_is_noticed(name: str, data: st.DataObject, change: str) -> None:
    trace = sound(name)
    false = changed_span(trace, data.draw(st.integers(0, len(trace.spans) - 1)), SPAN_CHANGES[change])
    assert prove(false).holds == (false == trace)


@pytest.mark.parametrize("name", sorted(PLANS))
@given(data=st.data(), change=st.sampled_from(sorted(ENTRY_CHANGES)))
@settings(max_examples=20, deadline=None)
def test_any_change_of_the_log_is_noticed(name: str, data: st.DataObject, change: str) -> None:
    trace = sound(name)
    false = changed_entry(trace, data.draw(st.integers(1, len(trace.entries) - 2)), ENTRY_CHANGES[change])
    assert prove(false).holds == (false == trace)


@pytest.mark.parametrize("name", sorted(PLANS))
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_nothing_can_be_left_out_or_said_twice(name: str, data: st.DataObject) -> None:
    trace = sound(name)
    span = data.draw(st.integers(0, len(trace.spans) - 1))
    entry = data.draw(st.integers(0, len(trace.entries) - 1))
    spans, entries = trace.spans, trace.entries
    assert not prove(replace(trace, spans=spans[:span] + spans[span + 1 :])).holds
    assert not prove(replace(trace, spans=(*spans, spans[span]))).holds
    assert not prove(replace(trace, entries=entries[:entry] + entries[entry + 1 :])).holds
    again = replace(entries[entry], seq=entries[-1].seq + 1, seconds=entries[-1].seconds)
    assert not prove(replace(trace, entries=(*entries, again))).holds


@pytest.mark.parametrize("name", sorted(PLANS))
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_no_two_entries_of_one_item_can_change_places(name: str, data: st.DataObject) -> None:
    """A command and what was heard of it, with numbers and times that fit the new order."""
    trace = sound(name)
    item = data.draw(st.sampled_from([e.item for e in trace.entries]))
    places = [i for i, e in enumerate(trace.entries) if e.item == item]
    first, last = trace.entries[places[0]], trace.entries[places[-1]]
    entries = list(trace.entries)
    entries[places[0]] = replace(last, seq=first.seq, seconds=first.seconds)
    entries[places[-1]] = replace(first, seq=last.seq, seconds=last.seconds)
    assert not prove(replace(trace, entries=tuple(entries))).holds
