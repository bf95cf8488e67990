"""A trace with anything wrong in its files is refused by one InputError that names the file and the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plans import make_plan, ppo_graph
from plans import run as drive
from rpeg.errors import InputError
from rpeg.trace import Entry, Span, Trace, What, driver_file, read_traces, span_file, write_trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return drive(make_plan(ppo_graph(), {s.name: (0, 1) for s in ppo_graph().stages}), steps=2)


def spoilt(path: Path, number: int, **changes: object) -> None:
    """A line with other fields."""
    lines = path.read_text().splitlines()
    lines[number - 1] = json.dumps({**json.loads(lines[number - 1]), **changes})
    path.write_text("\n".join([*lines, ""]))


WRONG: list[tuple[str, Any]] = [
    ("item", None),
    ("item", "abcde"),
    ("item", ["bad", "generate", 0, 0, 0]),
    ("item", ["run", [], 0, 0, 0]),
    ("item", ["run", "generate", "0", 0, 0]),
    ("ids", "abc"),
    ("ids", [[1]]),
    ("ids", ["1"]),
    ("ids", [1.0]),
    ("ids", 3),
    ("another", 1),
]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *WRONG,
        ("seq", "x"),
        ("seq", -1),
        ("seq", 1e400),
        ("seconds", float("nan")),
        ("seconds", float("-inf")),
        ("seconds", "1"),
        ("what", "zzz"),
        ("what", []),
        ("lanes", "device0"),
        ("lanes", [1]),
        ("lanes", [[1]]),
        ("parts", [[]]),
        ("parts", "x"),
        ("part", 1),
        ("versions", []),
        ("versions", {"actor": "1"}),
        ("error", 3),
    ],
)
def test_a_wrong_field_of_the_log_is_named(trace: Trace, tmp_path: Path, field: str, value: object) -> None:
    path = driver_file(write_trace(trace, tmp_path))
    number = 1 + next(i for i, e in enumerate(trace.entries) if e.what is What.LAUNCH)
    spoilt(path, number, **{field: value})
    with pytest.raises(InputError, match=rf"driver\.jsonl:{number}: .*{field}"):
        read_traces(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *WRONG,
        ("worker", None),
        ("lane", 3),
        ("launch", "x"),
        ("start_seconds", float("nan")),
        ("end_seconds", float("inf")),
        ("end_seconds", 10**400),
        ("reads", [1]),
        ("makes", "x"),
        ("digests", {"actor@0": None}),
        ("digests", "x"),
        ("tokens", -5),
        ("tokens", 1e400),
        ("memory_bytes", -1),
        ("memory_bytes", "x"),
    ],
)
def test_a_wrong_field_of_a_span_is_named(trace: Trace, tmp_path: Path, field: str, value: object) -> None:
    path = span_file(write_trace(trace, tmp_path), trace.spans[0].worker)
    spoilt(path, 2, **{field: value})
    with pytest.raises(InputError, match=rf"{path.name}:2: .*{field}"):
        read_traces(tmp_path)


@pytest.mark.parametrize("part", ["x", [1], -1, 1.0])
def test_a_wrong_part_is_named(part: object) -> None:
    with pytest.raises(InputError, match="part = "):
        Entry.from_json(
            {"seq": 3, "seconds": 1.0, "what": "produced", "item": ["run", "a", 0, 0, 0], "part": part}
        )


@pytest.mark.parametrize("value", [None, 7, [], "x", {}])
def test_what_is_no_line_is_refused(value: object) -> None:
    for read in (Entry.from_json, Span.from_json):
        with pytest.raises(InputError):
            read(value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", 3),
        ("source", "dreamt"),
        ("steps", "x"),
        ("steps", None),
        ("steps", 3.0),
        ("steps", -1),
        ("first_step", -1),
        ("complete", "no"),
        ("schema", [1]),
        ("steps", 10**9),
        ("another", 1),
    ],
)
def test_a_wrong_header_is_named(trace: Trace, tmp_path: Path, field: str, value: object) -> None:
    path = write_trace(trace, tmp_path) / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(InputError, match=rf"trace-1.*{field}"):
        read_traces(tmp_path)


def test_a_header_that_lacks_a_field_or_is_none(trace: Trace, tmp_path: Path) -> None:
    path = write_trace(trace, tmp_path) / "header.json"
    path.write_text(json.dumps({"schema": 1, "complete": True}))
    with pytest.raises(InputError, match=r"header\.json: the header lacks 'source'"):
        read_traces(tmp_path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"header\.json is not UTF-8"):
        read_traces(tmp_path)
    path.write_text("[]")
    with pytest.raises(InputError, match="named fields"):
        read_traces(tmp_path)


@pytest.mark.parametrize("name", ["driver.jsonl", "header.json"])
def test_a_directory_in_place_of_a_file(trace: Trace, tmp_path: Path, name: str) -> None:
    path = write_trace(trace, tmp_path) / name
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="Is a directory"):
        read_traces(tmp_path)
