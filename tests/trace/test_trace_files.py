"""Traces on disk: what is written is read back, and a crash loses at most the line that it tore."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plans import make_plan, ppo_graph
from plans import run as drive
from rpeg.errors import InputError
from rpeg.trace import Trace, driver_file, read_traces, span_file, write_trace

EVERYWHERE = {s.name: (0, 1) for s in ppo_graph().stages}


@pytest.fixture(scope="module")
def trace() -> Trace:
    return drive(make_plan(ppo_graph(), EVERYWHERE), steps=2)


def by_item(trace: Trace) -> Trace:
    return replace(trace, spans=tuple(sorted(trace.spans, key=lambda s: (s.worker, s.start_seconds, s.item))))


def test_round_trip(trace: Trace, tmp_path: Path) -> None:
    directory = write_trace(trace, tmp_path)
    (whole,) = read_traces(tmp_path)
    (alone,) = read_traces(directory)
    assert by_item(whole) == by_item(trace) == by_item(alone)


def test_stretches_are_numbered_and_read_in_order(trace: Trace, tmp_path: Path) -> None:
    for _ in range(11):
        write_trace(trace, tmp_path)
    write_trace(replace(trace, complete=False), tmp_path)
    found = read_traces(tmp_path)
    assert [t.complete for t in found] == [True] * 11 + [False]


def test_a_torn_last_line_is_dropped(trace: Trace, tmp_path: Path) -> None:
    directory = write_trace(trace, tmp_path)
    path = driver_file(directory)
    path.write_text(path.read_text()[:-20])
    (found,) = read_traces(tmp_path)
    assert found.entries == trace.entries[:-1]


def test_a_broken_line_in_the_middle_is_named(trace: Trace, tmp_path: Path) -> None:
    directory = write_trace(trace, tmp_path)
    path = span_file(directory, trace.spans[0].worker)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{", *lines[2:], ""]))
    with pytest.raises(InputError, match=rf"{path.name}:2 is not JSON"):
        read_traces(tmp_path)


def test_what_is_no_trace_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no trace"):
        read_traces(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        read_traces(tmp_path / "nothing")
