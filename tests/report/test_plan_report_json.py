"""`rpeg plan --json`: for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from plans_shown import local_plans, node_plans

from rpeg.plan import plan_from_json
from rpeg.report.plan_json import ranked_json
from rpeg.search import Baseline

DOCUMENT = (Path(__file__).parents[2] / "docs" / "planning.md").read_text()


def test_it_holds_the_chosen_plan_and_all_estimates() -> None:
    problem, ranked = local_plans()
    chosen = ranked.candidates[1]
    value = json.loads(json.dumps(ranked_json(ranked, chosen, problem)))
    assert plan_from_json(value["chosen"]["plan"]) == chosen.plan
    assert value["chosen"]["step_seconds"]["mean"] == chosen.estimate.step.mean_seconds
    assert [c["name"] for c in value["candidates"]] == [c.name for c in ranked.candidates]
    assert value["assumptions"] == list(problem.assumptions)


def test_baselines_are_there_with_or_without_a_plan() -> None:
    problem, ranked = local_plans()
    baselines = (Baseline("greedy", ranked.candidates[-1]), Baseline("ReaL", None, "too large"))
    value = ranked_json(replace(ranked, baselines=baselines), ranked.best, problem)
    assert "greedy" in [row["name"] for row in value["compared"]]
    assert value["without_plan"] == [{"name": "ReaL", "reason": "too large"}]


def test_every_field_is_described() -> None:
    problem, ranked = node_plans()
    value = ranked_json(ranked, ranked.best, problem)
    for key in (*value, *value["chosen"]):
        assert f"`{key}`" in DOCUMENT, key
