"""What rests in host memory between its runs was on the devices while it was used, and came and went in turn."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.plan import ItemKind, Rest
from rpeg.trace import Span
from rpeg.verify.evidence import Breach, Evidence, Property


def what_rests_is_there_when_used(evidence: Evidence) -> Iterator[Breach]:
    """By each lane's own clock: a reload, then all that needs it, then an offload; at a stretch's begin all rests."""
    for lane, spans in evidence.spans_of_lane.items():
        there: dict[str, Span | None] = {rest.name: None for rest in evidence.lowered.rests}
        last: dict[str, Span] = {}
        for span in spans:
            yield from _of_span(evidence.lowered.rests, lane, span, there, last)


def _of_span(
    rests: tuple[Rest, ...], lane: str, span: Span, there: dict[str, Span | None], last: dict[str, Span]
) -> Iterator[Breach]:
    name, kind = span.item.name, span.item.kind
    for rest in rests:
        if rest.uses(span.item.slot) and there[rest.name] is None:
            gone = (last[rest.name],) if rest.name in last else ()
            yield f"{span.item} ran on {lane} while {rest.name} was in host memory", (*gone, span)
    if kind not in (ItemKind.RELOAD, ItemKind.OFFLOAD) or name not in there:
        return
    before = there[name]
    if (before is None) is (kind is ItemKind.OFFLOAD):
        where = "in host memory" if before is None else "on the devices"
        yield (
            f"{span.item} ran on {lane} while {name} was {where} already",
            (*((before,) if before else ()), span),
        )
    there[name] = span if kind is ItemKind.RELOAD else None
    last[name] = span


RESIDENCY: tuple[Property, ...] = (what_rests_is_there_when_used,)
