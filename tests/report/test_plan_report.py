"""Plans as people and programs read them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from rpeg import algorithms
from rpeg.architecture import Architecture
from rpeg.cluster import local
from rpeg.plan import ItemKind, Slot, plan_from_json
from rpeg.report.plan import bounds, limits, memory, misfits, ranked_json, ranking, stages, summary
from rpeg.report.tables import percent, table
from rpeg.search import Misfit, Permissions, Problem, Ranked, plan_job
from rpeg.sim import Bound, Bounds, CycleRatio, Facts, Link, StepTime
from rpeg.workload import Workload, constant, lognormal


@pytest.fixture(scope="module")
def planned() -> tuple[Problem, Ranked]:
    module = algorithms.load("grpo")
    graph = module.graph(module.Hyper())
    tiny = Architecture("tiny", "llama", 2, 64, 4, 4, 16, 128, 259, 128)
    problem = Problem(
        graph,
        local(2, 4 * 2**30),
        Workload(4, 2, constant(10), lognormal(8, 24)),
        Facts(dict.fromkeys(("actor", "reference"), tiny)),
        microbatch=8,
        permissions=Permissions(staleness=1),
        assumptions=("responses: as long as [bold]ever[/bold]",),
    )
    return problem, plan_job(problem)


def _shown(found: Table, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(found)
    return capture.get()


def test_all_candidates_are_shown_and_the_best_is_marked(planned: tuple[Problem, Ranked]) -> None:
    _, ranked = planned
    shown = _shown(ranking(ranked, len(ranked.candidates)), width=120)
    rows = shown.splitlines()[2:]
    assert len(rows) == len(ranked.candidates)
    assert ["▶" in row for row in rows] == [True] + [False] * (len(rows) - 1)
    assert len(_shown(ranking(ranked, 3, chosen=4), width=120).splitlines()[2:]) == 5
    assert "stale" in shown


def test_staleness_has_no_column_where_no_plan_has_any(planned: tuple[Problem, Ranked]) -> None:
    _, ranked = planned
    fresh = tuple(c for c in ranked.candidates if not c.changes)
    assert "stale" not in _shown(ranking(replace(ranked, candidates=fresh)))


def test_the_summary_says_who_where_and_what_is_assumed(planned: tuple[Problem, Ranked]) -> None:
    problem, ranked = planned
    lines = "\n".join(summary(ranked.best, problem))
    assert "train_actor" in lines
    assert "0 % of the seconds rest on measurement" in lines
    assert "assumed: responses: as long as [bold]ever[/bold]" in lines


def test_stages_and_memory_are_tables(planned: tuple[Problem, Ranked]) -> None:
    _, ranked = planned
    assert "train_actor" in _shown(stages(ranked.best.estimate))
    assert "there is" in _shown(memory(ranked.best.estimate.memory))


def test_json_holds_the_best_plan_and_all_estimates(planned: tuple[Problem, Ranked]) -> None:
    problem, ranked = planned
    value = json.loads(json.dumps(ranked_json(ranked, problem)))
    assert plan_from_json(value["best"]) == ranked.best.plan
    assert len(value["candidates"]) == len(ranked.candidates)
    assert value["candidates"][0]["step_seconds"]["mean"] == ranked.best.estimate.step.mean_seconds


def test_misfits_give_their_reason() -> None:
    assert list(misfits((Misfit("split", "too small"),))) == ["left out: split: too small"]


def test_cells_are_shown_as_they_are() -> None:
    assert "[red]x[/red]" in _shown(table(("name",), [("[red]x[/red]",)]))
    assert percent(0.034) == "3 %"


def test_each_bound_is_told_with_its_gap(planned: tuple[Problem, Ranked]) -> None:
    found = replace(
        planned[1].best.estimate,
        step=StepTime(12.0, 12.0, 12.0, 4),
        bounds=Bounds(
            Bound("lane", "device0", 10.0),
            Bound("dependencies", "generate → train_actor", 6.0),
            Bound("work", "local", 4.0),
        ),
    )
    assert found.bound.by == "lane"
    assert list(bounds(found)) == [
        "at least 10 s: device0 is busy so long (gap 20 %)",
        "at least 6 s: on any number of devices, for generate → train_actor wait for each other (gap 100 %)",
        "at least 4 s: all devices of local need so long for the work at its best, whatever the plan (gap 200 %)",
    ]


def test_what_limits_a_step_is_told_by_shares_of_its_critical_cycle(planned: tuple[Problem, Ranked]) -> None:
    generate, train = Slot(ItemKind.RUN, "generate"), Slot(ItemKind.RUN, "train_actor")
    away = Slot(ItemKind.OFFLOAD, "train_actor:model")
    links = (
        Link(generate, train, 6.0, 0, "rollouts"),
        Link(train, away, 3.0, 0, "order"),
        Link(away, generate, 1.0, 1, "device0"),
        Link(generate, generate, 0.0, 0, "device0"),
    )
    found = replace(planned[1].best.estimate, critical=CycleRatio(10.0, links))
    assert list(limits(found)) == [
        "what limits the step: generate 60 %, train_actor 30 %, offload train_actor:model 10 %"
    ]
    assert list(limits(replace(found, critical=CycleRatio(0.0, ())))) == []
