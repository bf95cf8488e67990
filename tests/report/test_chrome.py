from __future__ import annotations

import json
from typing import Any

import pytest

from plans import PLANS, colocated, run, split, streamed
from rpeg.report.chrome import chrome_trace


def events(value: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [event for event in value["traceEvents"] if event["ph"] == phase]


@pytest.mark.parametrize("name", sorted(PLANS))
def test_every_span_entry_and_lane_is_drawn(name: str) -> None:
    trace = run(PLANS[name](), 3, clocks={"device0": 1e5})
    value = json.loads(json.dumps(chrome_trace(trace), allow_nan=False))
    slices = events(value, "X")
    assert len(slices) == len(trace.spans)
    assert len(events(value, "i")) == len(trace.entries)
    tracks = {e["tid"]: e["args"]["name"] for e in events(value, "M") if e["name"] == "thread_name"}
    assert set(tracks.values()) == {lane.name for lane in trace.plan.order}
    assert {tracks[e["tid"]] for e in slices} == {span.lane for span in trace.spans}
    assert all(e["ts"] >= -1e-3 and e["dur"] >= 0 for e in slices)


def test_clocks_are_brought_to_the_drivers() -> None:
    same = events(chrome_trace(run(split(), 3)), "X")
    shifted = events(chrome_trace(run(split(), 3, clocks={"device1": -4321.0, "device0": 99.0})), "X")
    for a, b in zip(same, shifted, strict=True):
        assert b["ts"] == pytest.approx(a["ts"], abs=1.0)  # microseconds


@pytest.mark.parametrize("name", sorted(PLANS))
def test_arrows_join_slices_and_point_forward(name: str) -> None:
    value = chrome_trace(run(PLANS[name](), 3))
    begins = {e["id"]: e for e in events(value, "s")}
    ends = {e["id"]: e for e in events(value, "f")}
    assert begins.keys() == ends.keys()
    assert {e["cat"] for e in begins.values()} == {"data", "weights"}
    for number, begin in begins.items():
        assert begin["ts"] <= ends[number]["ts"]
        assert _slices_at(value, begin)
        assert _slices_at(value, ends[number])


def _slices_at(value: dict[str, Any], event: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        s
        for s in events(value, "X")
        if s["tid"] == event["tid"] and s["ts"] - 1e-3 <= event["ts"] <= s["ts"] + s["dur"] + 1e-3
    ]


def test_arrows_are_bounded_and_that_is_said() -> None:
    value = chrome_trace(run(streamed(), 3), most_flows=10)
    assert len(events(value, "s")) == len(events(value, "f")) == 10
    assert value["otherData"]["arrows"] == "the first 10"
    assert chrome_trace(run(split(), 2))["otherData"]["arrows"] == "all"


def test_slices_tell_versions_samples_and_tokens() -> None:
    slices = events(chrome_trace(run(colocated(), 2)), "X")
    train = next(e for e in slices if e["name"] == "train_actor 1")
    assert train["cat"] == "train"
    assert train["args"]["reads"] == {"actor": 1}
    assert train["args"]["makes"] == {"actor": 2}
    assert train["args"]["samples"] == 4
    assert train["args"]["tokens"] == 32
