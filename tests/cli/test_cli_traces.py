"""The commands that read a run's trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plans import run, split
from rpeg.cli.main import make_app
from rpeg.trace import write_trace


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """The directory of a run with its prediction."""
    write_trace(run(split(), 5), tmp_path)
    write_trace(run(split(), 5, source="simulated", seed=1), tmp_path / "predicted")
    return tmp_path


def rpeg(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_verify_says_what_is_proven(finished: Path) -> None:
    code, text = rpeg("verify", finished)
    assert code == 0
    assert "proven:" in text
    assert "40 samples trained" in text
    code, text = rpeg("verify", finished / "trace-1", "--json")
    assert code == 0
    assert json.loads(text)["counts"]["steps"] == 5


def test_verify_takes_simulated_traces(finished: Path) -> None:
    assert rpeg("verify", finished / "predicted")[0] == 0


def test_verify_shows_a_counterexample_and_exits_with_1(tmp_path: Path) -> None:
    trace = run(split(), 3)
    spans = tuple(
        replace(s, reads={"actor": 0}) if s.item.name == "generate" and s.item.step == 2 else s
        for s in trace.spans
    )
    write_trace(replace(trace, spans=spans), tmp_path)
    code, text = rpeg("verify", tmp_path)
    assert code == 1
    assert "exact edges use their bound" in text
    assert "generate[step 2, part 0, replica 0] read actor@0" in text
    code, text = rpeg("verify", tmp_path, "--json")
    assert code == 1
    assert not json.loads(text)["proven"]


def test_verify_of_a_run_that_was_cut_short(tmp_path: Path) -> None:
    write_trace(replace(run(split(), 3), complete=False), tmp_path)
    code, text = rpeg("verify", tmp_path)
    assert code == 0
    assert "the run was cut short" in text


def test_verify_of_a_run_in_which_nothing_happened(tmp_path: Path) -> None:
    write_trace(replace(run(split(), 3), entries=(), spans=(), complete=False), tmp_path)
    code, text = rpeg("verify", tmp_path)
    assert code == 1
    assert "nothing is proven" in text


@pytest.mark.parametrize("command", ["verify", "compare", "trace"])
def test_a_directory_without_a_trace(command: str, tmp_path: Path) -> None:
    code, text = rpeg(command, tmp_path / "nothing")
    assert code == 2
    assert "does not exist" in text
    assert rpeg(command, tmp_path)[0] == 2


def test_compare_prints_both_times(finished: Path) -> None:
    code, text = rpeg("compare", finished)
    assert code == 0
    assert "whole step" in text
    code, text = rpeg("compare", finished, "--json", "--skip", "2")
    assert code == 0
    assert json.loads(text)["step"]["measured_steps"] == 3


def test_compare_without_a_prediction(tmp_path: Path) -> None:
    write_trace(run(split(), 3), tmp_path)
    code, text = rpeg("compare", tmp_path)
    assert code == 2
    assert "--predicted" in text


def test_trace_writes_a_file_for_a_viewer(finished: Path) -> None:
    code, text = rpeg("trace", finished)
    assert code == 0
    assert "ui.perfetto.dev" in text
    assert json.loads((finished / "trace.json").read_text())["traceEvents"]
    assert rpeg("trace", finished, "--stretch", "2")[0] == 2
    assert rpeg("trace", finished, "-o", finished / "no" / "x.json")[0] == 2
