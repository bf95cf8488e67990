"""Plans as JSON, there and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.errors import PlanError
from rpeg.plan import Plan, check, digest, plan_from_json, plan_to_json, read_plan, write_plan
from rpeg.transforms import parse
from samples_of_plans import assign, grpo, plan_of, ppo

STREAMED = parse("stream{chunk=2}")
ASYNCHRONOUS = parse("async{staleness=1,freshness=latest}")


@st.composite
def some_plan(draw: st.DrawFn) -> Plan:
    graph = draw(st.sampled_from((ppo(), ppo(evaluate_every=2), grpo())))
    devices = draw(st.sampled_from(((0,), (0, 1))))
    applied = draw(st.sampled_from(((), (STREAMED,), (ASYNCHRONOUS,), (STREAMED, ASYNCHRONOUS))))
    generate = draw(st.sampled_from(((0,), (1,), (0, 1))))
    assignments = assign(graph, devices, zero=draw(st.sampled_from((0, 3))), generate=generate)
    shift = draw(st.integers(0, 1)) if ASYNCHRONOUS in applied else 0
    shifts = {s.name: shift for s in graph.stages if s.name != "generate"}
    return plan_of(graph, assignments, applied=applied, shifts=shifts)


@settings(max_examples=40, deadline=None)
@given(some_plan())
def test_what_is_written_is_read_back(plan: Plan) -> None:
    again = plan_from_json(json.loads(json.dumps(plan_to_json(plan))))
    assert again == plan
    assert digest(again) == digest(plan)
    assert check(again) == plan


def test_a_file_is_read_back(tmp_path: Path) -> None:
    plan = plan_of(ppo(), assign(ppo(), (0, 1)), applied=(STREAMED,))
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


def test_the_digest_tells_plans_apart() -> None:
    one, other = (plan_of(ppo(), assign(ppo(), devices)) for devices in ((0,), (1,)))
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no plan"),
        ("{}", "no 'schema'"),
        ('{"schema": 99}', "schema 99"),
        ('{"schema": 1, "graph": ["graph g"]}', "lacks .order."),
        ('{"schema": 1, "graph": 7, "order": {}}', "has graph = 7, a list is needed"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)
    with pytest.raises(PlanError, match=words):
        read_plan(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="No such file"):
        read_plan(tmp_path / "plan.json")
