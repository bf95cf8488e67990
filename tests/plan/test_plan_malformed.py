"""A plan file with anything wrong in it is refused by one PlanError that names the place and the value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.errors import InputError, PlanError
from rpeg.plan import check, plan_from_json, plan_to_json, read_plan
from samples_of_plans import assign, plan_of, ppo

PLAN = json.dumps(plan_to_json(plan_of(ppo(), assign(ppo(), (0, 1)))))
JUNK = (
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    1e30,
    float("nan"),
    "",
    "x",
    "4",
    "\ud800",
    [],
    [7],
    [[0]],
    {},
    {"x": 1},
)
Path_ = tuple[str | int, ...]


def places(value: Any, before: Path_ = ()) -> Iterator[Path_]:
    """The path of every value inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*before, key)
        yield from places(part, (*before, key))


def changed(place: Path_, value: object) -> Any:
    whole = target = json.loads(PLAN)
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    return whole


PLACES = sorted(places(json.loads(PLAN)), key=str)


@settings(max_examples=300, deadline=None)
@given(place=st.sampled_from(PLACES), junk=st.sampled_from(JUNK))
def test_no_value_anywhere_gives_a_traceback(place: Path_, junk: object) -> None:
    try:
        plan = plan_from_json(changed(place, junk))
    except PlanError:
        return
    try:
        check(plan)
    except InputError:
        return


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("stage", [], "assignment has stage = \\[\\], a text"),
        ("devices", ["0"], "stage generate has '0' in devices, a list of whole numbers"),
        ("devices", [None], "stage generate has None in devices"),
        ("devices", [[0]], "stage generate has \\[0\\] in devices"),
        ("devices", "0", "stage generate has devices '0', a list"),
        ("microbatch", "4", "stage generate has microbatch = '4', a whole number"),
        ("microbatch", None, "microbatch = None"),
        ("microbatch", 1.5, "microbatch = 1.5"),
        ("backend", None, "backend = None, a text"),
        ("backend", 3, "backend = 3, a text"),
        ("junk", 1, "stage generate has no field 'junk'"),
    ],
)
def test_a_wrong_field_of_an_assignment_is_named(field: str, value: object, words: str) -> None:
    index = next(i for i, a in enumerate(json.loads(PLAN)["assignments"]) if a["stage"] == "generate")
    with pytest.raises(PlanError, match=words):
        plan_from_json(changed(("assignments", index, field), value))


@pytest.mark.parametrize("field", ["host", "slots"])
@pytest.mark.parametrize("value", ["1", None, 1.5, 10**30])
def test_a_wrong_host_is_named(field: str, value: object) -> None:
    index = next(i for i, a in enumerate(json.loads(PLAN)["assignments"]) if "host" in a)
    with pytest.raises(InputError, match=rf"{field} = |host 1000"):
        check(plan_from_json(changed(("assignments", index, field), value)))


@pytest.mark.parametrize("value", ["1", None, 1.5])
def test_a_wrong_shift_is_named(value: object) -> None:
    with pytest.raises(PlanError, match=r"lane device0 has the turn \['run', "):
        plan_from_json(changed(("order", "device0", 0, 4), value))


@pytest.mark.parametrize(("value", "words"), [([7], "7 in applied"), ([[]], "applied"), ({}, "applied = {}")])
def test_transforms_that_are_no_texts_are_named(value: object, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan_from_json(changed(("applied",), value))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b"", "is not JSON"),
        (b"9" * 5000, "too many digits"),
    ],
)
def test_a_file_that_is_no_json_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(PlanError, match=f"plan.json .*{words}|plan.json {words}"):
        read_plan(path)


def test_a_directory_is_no_plan(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="Is a directory"):
        read_plan(tmp_path)
