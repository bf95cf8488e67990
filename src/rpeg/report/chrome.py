"""A trace in the trace-event format of Chrome, which ui.perfetto.dev and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are microseconds from
the trace's first moment. Workers' clocks are brought to the driver's by the middle of the offsets that are possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rpeg.ir import WEIGHTS
from rpeg.plan import Arc, Item, ItemKind
from rpeg.trace import Span, Trace
from rpeg.verify import Evidence, on_driver_clock

DRIVER, LANES = 1, 2  # processes as the viewer shows them
MOST_FLOWS = 20_000

Event = dict[str, Any]


def chrome_trace(trace: Trace, most_flows: int = MOST_FLOWS) -> dict[str, Any]:
    """A JSON object with `traceEvents`: one track a lane, arrows for data and weights, the driver's log as instants.

    most_flows: arrows beyond it are left out; `otherData` says so.
    """
    drawing = _Drawing.of(trace)
    flows = list(islice(drawing.flows(), most_flows + 1))
    cut = len(flows) > most_flows
    arrows = [event for pair in flows[:most_flows] for event in pair]
    return {
        "traceEvents": [*drawing.names(), *drawing.slices(), *drawing.instants(), *arrows],
        "displayTimeUnit": "ms",
        "otherData": {
            "graph": trace.plan.graph.name,
            "source": trace.source,
            "steps": f"{trace.first_step} to {trace.steps - 1}",
            "applied": list(trace.plan.applied),
            "arrows": f"the first {most_flows}" if cut else "all",
        },
    }


@dataclass(frozen=True)
class _Drawing:
    """A trace with its spans on the driver's clock and the number of each lane's track."""

    evidence: Evidence
    start_seconds: float
    tracks: Mapping[str, int]

    @staticmethod
    def of(trace: Trace) -> _Drawing:
        spans = on_driver_clock(trace)
        aligned = Trace(
            trace.plan, trace.source, trace.steps, trace.first_step, trace.entries, spans, trace.complete
        )
        start = min((*(e.seconds for e in trace.entries), *(s.start_seconds for s in spans)), default=0.0)
        lanes = dict.fromkeys((*(lane.name for lane in trace.plan.order), *(s.lane for s in spans)))
        return _Drawing(Evidence(aligned), start, {lane: i for i, lane in enumerate(lanes, 1)})

    def names(self) -> Iterator[Event]:
        yield _name("process_name", DRIVER, 0, "driver")
        yield _name("process_name", LANES, 0, "lanes")
        for lane, track in self.tracks.items():
            yield _name("thread_name", LANES, track, lane)
            sort = {"sort_index": track}
            yield {"ph": "M", "name": "thread_sort_index", "pid": LANES, "tid": track, "args": sort}

    def slices(self) -> Iterator[Event]:
        for span in self.evidence.trace.spans:
            kind = self.evidence.kind(span.item)
            yield {
                "ph": "X",
                "name": _title(span.item),
                "cat": str(kind or span.item.kind),
                "pid": LANES,
                "tid": self.tracks[span.lane],
                "ts": self._microseconds(span.start_seconds),
                "dur": max(0.0, span.seconds) * 1e6,
                "args": _arguments(span),
            }

    def instants(self) -> Iterator[Event]:
        for entry in self.evidence.trace.entries:
            yield {
                "ph": "i",
                "s": "t",
                "name": f"{entry.what} {_title(entry.item)}",
                "cat": str(entry.what),
                "pid": DRIVER,
                "tid": 0,
                "ts": self._microseconds(entry.seconds),
                "args": {"seq": entry.seq, "item": str(entry.item), "error": entry.error},
            }

    def flows(self) -> Iterator[tuple[Event, Event]]:
        """Pairs of arrow ends. A gang is drawn from and to its first lane."""
        number = 0
        for item, spans in self.evidence.spans.items():
            for arc, source in self.evidence.sources(item):
                givers = self.evidence.spans.get(source)
                if not givers or arc.why == "order":
                    continue
                number += 1
                yield self._flow(number, arc, givers[0], spans[0])

    def _flow(self, number: int, arc: Arc, giver: Span, taker: Span) -> tuple[Event, Event]:
        category = "weights" if arc.why.startswith(WEIGHTS) else "data"
        common = {"name": arc.why, "cat": category, "id": number, "pid": LANES}
        left = self._leaving(arc, giver)
        begin = {**common, "ph": "s", "tid": self.tracks[giver.lane], "ts": self._microseconds(left)}
        arrived = self._microseconds(taker.start_seconds)
        return begin, {**common, "ph": "f", "bp": "e", "tid": self.tracks[taker.lane], "ts": arrived}

    def _leaving(self, arc: Arc, giver: Span) -> float:
        """When an arrow leaves: within the giver's slice, for the viewer ties it to the slice around it."""
        last = giver.end_seconds - giver.seconds / 100
        event = self.evidence.arrival(arc, giver.item) if arc.part is not None else None
        return last if event is None else min(max(event.seconds, giver.start_seconds), last)

    def _microseconds(self, seconds: float) -> float:
        return (seconds - self.start_seconds) * 1e6


def _name(what: str, process: int, track: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": track, "args": {"name": name}}


def _title(item: Item) -> str:
    name = item.name if item.kind is ItemKind.RUN else f"{item.kind} {item.name}"
    return f"{name} {item.step}"


def _arguments(span: Span) -> Event:
    return {
        "item": str(span.item),
        "worker": span.worker,
        "command": span.launch,
        "reads": dict(span.reads),
        "makes": dict(span.makes),
        "samples": len(span.ids),
        "tokens": span.tokens,
        "memory_bytes": span.memory_bytes,
    }
