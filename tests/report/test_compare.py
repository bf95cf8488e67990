from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from plans import asynchronous, run, split, streamed
from rpeg.errors import InputError
from rpeg.plan import Item, Plan
from rpeg.report.compare import Comparison, Pair, compare, comparison_table, stage_seconds, stretch_to_compare
from rpeg.report.occupancy import steady_window
from rpeg.trace import Trace


def predicted_seconds(item: Item) -> float:
    return {"generate": 4.0, "train_actor": 2.0}.get(item.name, 0.5)


def measured_seconds(item: Item) -> float:
    return {"generate": 5.0, "train_actor": 2.0, "reward": 0.4}.get(item.name, 0.5)


def compared(plan: Plan) -> Comparison:
    predicted = run(plan, 6, source="simulated", seconds=predicted_seconds, latency_seconds=0.0)
    return compare(predicted, run(plan, 6, seconds=measured_seconds, latency_seconds=0.0))


def test_stages_are_joined_by_name_and_sorted_by_time() -> None:
    comparison = compared(split())
    rows = {row.name: row.seconds for row in comparison.stages}
    assert comparison.stages[0].name == "generate"
    assert rows["generate"] == Pair(pytest.approx(4.0), pytest.approx(5.0))
    assert rows["generate"].error == pytest.approx(-0.2)
    assert rows["reward"].error == pytest.approx(0.25)
    assert rows["train_actor"].error == pytest.approx(0.0)
    assert [row.name for row in comparison.stages if row.is_transfer] == [
        "train_actor->generate:weights:actor"
    ]


def test_the_whole_step_is_the_median_between_ends_of_training() -> None:
    trace = run(split(), 6, seconds=measured_seconds, latency_seconds=0.0)
    comparison = compare(replace(trace, source="simulated"), trace)
    assert comparison.step.error == pytest.approx(0.0)
    assert comparison.step.measured is not None
    assert comparison.step.measured > 5.0 + 2.0  # one after the other, and the rest beside or between


def test_an_outlying_step_does_not_move_the_median() -> None:
    slow = run(
        split(), 8, seconds=lambda i: 50.0 if (i.name, i.step) == ("generate", 4) else predicted_seconds(i)
    )
    comparison = compare(run(split(), 8, source="simulated", seconds=predicted_seconds), slow)
    assert comparison.step.error == pytest.approx(0.0, abs=1e-6)


def test_parts_of_a_stage_add_up_over_a_step() -> None:
    trace = run(streamed(), 5, seconds=lambda item: 0.25)
    seconds = stage_seconds(trace, steady_window(trace))
    assert seconds["reward"] == pytest.approx(4 * 0.25)
    assert seconds["train_actor"] == pytest.approx(0.25)


def test_lanes_account_for_their_wall_time() -> None:
    for row in compared(asynchronous()).lanes:
        for account in (row.predicted, row.measured):
            total = account.busy_seconds + account.idle_seconds
            assert total == pytest.approx(account.wall_seconds, rel=0.01)


def test_a_stage_that_only_one_side_has() -> None:
    trace = run(split(), 6, seconds=measured_seconds)
    lacking = replace(trace, spans=tuple(s for s in trace.spans if s.item.name != "value"))
    rows = {row.name: row.seconds for row in compare(trace, lacking).stages}
    assert rows["value"].measured is None
    assert rows["value"].error is None


def test_another_plans_prediction_is_refused() -> None:
    with pytest.raises(InputError, match="of its own plan"):
        compare(run(asynchronous(), 4), run(split(), 4))


def test_the_stretch_to_compare_is_compared() -> None:
    short, long, later = run(split(), 1), run(split(), 6, 1), run(split(), 9, 5)
    assert stretch_to_compare((short, long, later)) is later
    assert stretch_to_compare((long, short)) is long
    assert stretch_to_compare((short,)) is short
    with pytest.raises(InputError):
        stretch_to_compare(())


def shown(comparison: Comparison) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(comparison_table(comparison))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_shows_errors_and_idle_time() -> None:
    text = shown(compared(split()))
    row = next(line for line in text.splitlines() if "generate" in line and "transfer" not in line)
    assert [word for word in row.replace("│", " ").split() if word] == [
        "generate",
        "4",
        "s",
        "5",
        "s",
        "-20%",
    ]
    assert "whole step" in text
    assert "idle" in text


def test_names_are_shown_as_they_are() -> None:
    def renamed(trace: Trace) -> Trace:
        spans = tuple(
            replace(s, item=replace(s.item, name="[red]x[/red]")) if s.item.name == "value" else s
            for s in trace.spans
        )
        return replace(trace, spans=spans)

    trace = renamed(run(split(), 4))
    assert "[red]x[/red]" in shown(compare(trace, trace))


def test_json_has_all_that_the_table_has() -> None:
    comparison = compared(split())
    value = json.loads(json.dumps(comparison.to_json()))
    assert value["step"]["measured_steps"] == 5
    assert {row["name"] for row in value["stages"]} == {row.name for row in comparison.stages}
    lane = next(lane for lane in value["lanes"] if lane["lane"] == "device0")["measured"]
    assert lane["idle_seconds"] + sum(lane["busy_seconds"].values()) == pytest.approx(lane["wall_seconds"])
