"""Lies about sound runs, each of which breaks one named property by construction.

A mutation takes a run (its stretches) and a source of randomness, and gives the run with a lie in it, or None where there
is nothing in the run that it could lie about. Lies are as consistent as they can be: what is said of an item is said by
its command, its events and its spans alike, where the property does not live off their difference.

    @of_stretch("log_has_no_gaps")
    def an_entry_is_lost(trace, draw): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from rpeg.ir import Kind
from rpeg.plan import Item
from rpeg.trace import Entry, Span, Trace, What
from rpeg.verify import Evidence

Run = tuple[Trace, ...]
T = TypeVar("T")
OfStretch = Callable[[Trace, Random], Trace | None]
OfRun = Callable[[Run, Random], Run | None]


@dataclass(frozen=True)
class Mutation:
    """breaks: the name of the property. apply: None where the run has nothing that it could lie about."""

    breaks: str
    name: str
    apply: OfRun


REGISTERED: list[Mutation] = []


def of_run(breaks: str) -> Callable[[OfRun], OfRun]:
    def register(change: OfRun) -> OfRun:
        REGISTERED.append(Mutation(breaks, change.__name__, change))
        return change

    return register


def of_stretch(breaks: str) -> Callable[[OfStretch], OfStretch]:
    """A lie in one of the stretches, whichever is drawn."""

    def register(change: OfStretch) -> OfStretch:
        def apply(run: Run, draw: Random) -> Run | None:
            at = draw.randrange(len(run))
            changed = change(run[at], draw)
            return None if changed is None else (*run[:at], changed, *run[at + 1 :])

        REGISTERED.append(Mutation(breaks, change.__name__, apply))
        return change

    return register


def pick(draw: Random, found: Iterable[T]) -> T | None:
    """One of them; None where there are none."""
    known = list(found)
    return draw.choice(known) if known else None


def with_entries(trace: Trace, change: Callable[[Entry], Entry]) -> Trace:
    return replace(trace, entries=tuple(map(change, trace.entries)))


def with_spans(trace: Trace, change: Callable[[Span], Span]) -> Trace:
    return replace(trace, spans=tuple(map(change, trace.spans)))


def with_span(trace: Trace, span: Span, **changes: object) -> Trace:
    return with_spans(trace, lambda s: replace(s, **changes) if s is span else s)  # type: ignore[arg-type]


def without_span(trace: Trace, *gone: Span) -> Trace:
    return replace(trace, spans=tuple(s for s in trace.spans if not any(s is g for g in gone)))


def relogged(trace: Trace, entries: Sequence[Entry]) -> Trace:
    """The log in another order, with numbers, times and the spans' references made to fit it."""
    times = sorted(e.seconds for e in entries)
    told = [replace(e, seq=i, seconds=t) for i, (e, t) in enumerate(zip(entries, times, strict=True))]
    number = {old.seq: new.seq for old, new in zip(entries, told, strict=True)}
    changed = replace(trace, entries=tuple(told))
    return with_spans(changed, lambda s: replace(s, launch=number.get(s.launch, -1)))


def moved(trace: Trace, entry: Entry, before: Entry | None = None, after: Entry | None = None) -> Trace:
    """An entry told earlier, or later."""
    entries = [e for e in trace.entries if e is not entry]
    place = next(i for i, e in enumerate(entries) if e is before or e is after)
    entries.insert(place + (after is not None), entry)
    return relogged(trace, entries)


def reading(trace: Trace, item: Item, model: str, version: int) -> Trace:
    """An item that was commanded to read, and read, another version of a model."""

    def other(versions: Mapping[str, int]) -> dict[str, int]:
        return {m: version if m == model else v for m, v in versions.items()}

    def span(s: Span) -> Span:
        if s.item != item or model not in s.reads:
            return s
        old = f"{model}@{s.reads[model]}"
        kept = {k: d for k, d in s.digests.items() if k != old}
        told = {f"{model}@{version}": digest_of(trace, model, version)} if old in s.digests else {}
        return replace(s, reads=other(s.reads), digests={**kept, **told})

    changed = with_entries(
        trace, lambda e: replace(e, versions=other(e.versions)) if e.item == item and e.what.begins else e
    )
    return with_spans(changed, span)


def digest_of(trace: Trace, model: str, version: int) -> str:
    name = f"{model}@{version}"
    told = (s.digests[name] for s in trace.spans if name in s.digests)
    return next(told, f"sim:{name}" if trace.source == "simulated" else f"bytes of {name}")


def with_ids(trace: Trace, change: Callable[[Item, tuple[int, ...]], tuple[int, ...]]) -> Trace:
    """What items work on, told alike by commands and spans; tokens are those of as many samples."""

    def span(s: Span) -> Span:
        ids = change(s.item, s.ids) if s.ids else s.ids
        if ids == s.ids or not s.ids:
            return s
        return replace(s, ids=ids, tokens=max(len(ids), s.tokens * len(ids) // len(s.ids)))

    def entry(e: Entry) -> Entry:
        return replace(e, ids=change(e.item, e.ids)) if e.what is What.LAUNCH and e.ids else e

    return with_spans(with_entries(trace, entry), span)


def without(ids: Iterable[int], sample: int) -> tuple[int, ...]:
    return tuple(i for i in ids if i != sample)


def instead(ids: Iterable[int], old: int, new: int) -> tuple[int, ...]:
    return tuple({old: new, new: old}.get(i, i) for i in ids)


def work_of(trace: Trace, *kinds: Kind) -> list[Entry]:
    """The commands to work on samples that have finished, of stages of these kinds (of all, where none is named)."""
    evidence = Evidence(trace)
    return [
        e for e in evidence.commands.values()
        if e.ids and e.item in evidence.finished and e.item in evidence.spans
        and (not kinds or evidence.kind(e.item) in kinds)
    ]  # fmt: skip


ASSESS = (Kind.INFERENCE, Kind.HOST)


def verdicts(trace: Trace, what: What, why: str | None = None) -> list[Entry]:
    """What a selector said of samples."""
    selector = trace.plan.graph.selector
    return [
        e for e in trace.entries
        if selector is not None and e.what is what and e.item.name == selector.name and e.ids and why in (None, e.why)
    ]  # fmt: skip
