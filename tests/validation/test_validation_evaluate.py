"""Outcomes of records: refused ones keep their reason, bugs are reported, and groups and JSON hold all of them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rpeg.cli import main
from rpeg.cost.tree import Cost, sequence
from rpeg.errors import InputError
from rpeg.validation import KINDS, Evaluation, Kind, Located, Outcome, Summary, evaluate, select, summarise
from rpeg.validation.evaluate import Predict
from rpeg.validation.report import report

GIB = 2**30


def train(record: Mapping[str, Any]) -> Outcome:
    """Says what the record asks it to say."""
    if "refuse" in record:
        raise InputError(record["refuse"])
    if "crash" in record:
        raise KeyError(record["crash"])
    predicted = record.get("says")
    cost = sequence("step", [Cost("forward", 1.0), Cost("backward", 2.0)])
    reason = record.get("why", "")
    measured = record["target"].get("step_time_s")
    return Outcome("", "", "train", f"tp {record['tp']}", measured, predicted, cost=cost, reason=reason)


def memory(record: Mapping[str, Any]) -> Outcome:
    measured = record.get("measured", {}).get("peak_mem")
    ran = None if measured is None else True
    return Outcome(
        "", "", "memory", "", measured, 60.0 * GIB, "bytes", fits=ran, predicted_fits=record["fits"]
    )


def readers() -> dict[Kind, Predict]:
    return {**dict.fromkeys(KINDS, train), "memory": memory}


def row(id: str, seconds: float = 1.0, says: float | None = 1.0, source: str = "A", **more: Any) -> Located:
    record = {"id": id, "source": source, "target": {"step_time_s": seconds}, "says": says, "tp": 1}
    return Located("rows.jsonl:1", {**record, "model": "m", "gpu": "g", **more})


def peak(
    id: str, fits: bool, source: str = "A", status: str = "ok", measured: float | None = None
) -> Located:
    record: dict[str, Any] = {"id": id, "source": source, "mem_basis": "", "fits": fits, "status": status}
    record |= {"model": "m", "gpu": "g"}
    if measured is not None:
        record["measured"] = {"peak_mem": measured}
    return Located("rows.jsonl:1", record)


def judged(*rows: Located) -> Evaluation:
    return evaluate(rows, readers())


def summed(*rows: Located) -> Summary:
    return summarise(judged(*rows))


def test_identity_and_standing_come_from_the_record() -> None:
    (outcome,) = judged(row("r1", core=True, suspect="contradicts r2")).outcomes
    assert (outcome.id, outcome.source, outcome.kind) == ("r1", "A", "train")
    assert (outcome.core, outcome.suspect) == (True, True)


def test_a_refused_record_keeps_its_reason() -> None:
    evaluation = judged(row("r1", refuse="tp 3 does not divide 8 heads"), row("r2"))
    assert evaluation.outcomes[0].reason == "tp 3 does not divide 8 heads"
    assert evaluation.bugs == ()
    (reason,) = summarise(evaluation).unpredicted
    assert (reason.count, reason.ids) == (1, ("r1",))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("model", None, "a record of train needs 'model'"),
        ("model", 7, "the record has model = 7, an object or a name is needed"),
        ("model", {"layers": "many"}, "the record has layers = 'many', a number of at least 0 is needed"),
        ("gpu", 8, "the record has gpu = 8, a text is needed"),
        ("tp", "eight", "the record has tp = 'eight', a number of at least 0 is needed"),
        ("zero_stage", 4, "the record has zero_stage = 4, 0, 1, 2 or 3 is needed"),
        ("target", [3], "the record has target = [3], an object is needed"),
        ("target", {"step_time_s": "1 s"}, "the record has step_time_s = '1 s', a number is needed"),
    ],
)
def test_a_malformed_record_is_refused_and_no_bug(field: str, value: object, says: str) -> None:
    evaluation = judged(row("r1", **{field: value}))
    assert evaluation.bugs == ()
    assert evaluation.outcomes[0].reason == says


def test_a_bug_is_reported_and_the_others_go_on() -> None:
    evaluation = judged(row("r1", crash="layers"), row("r2"))
    (bug,) = evaluation.bugs
    assert (bug.id, bug.what) == ("r1", "KeyError: 'layers'")
    assert Path(__file__).name in bug.where
    assert [o.error for o in evaluation.outcomes] == [None, 0.0]


@pytest.mark.parametrize("says", [float("nan"), float("inf"), 0.0, -1.0, None])
def test_a_prediction_that_is_none_is_a_bug(says: float | None) -> None:
    assert len(judged(row("r1", says=says)).bugs) == 1


def test_no_prediction_with_a_reason_is_no_bug() -> None:
    evaluation = judged(row("r1", says=None, why="no lengths"))
    assert evaluation.bugs == ()
    assert summarise(evaluation).unpredicted[0].reason == "no lengths"


def test_a_measurement_of_nothing_is_not_compared() -> None:
    assert summed(row("r1", seconds=0.0)).unpredicted[0].reason == "measured 0.0 s"


def test_suspect_records_are_in_no_figure() -> None:
    summary = summed(row("r1"), row("r2", says=9.0, suspect="contradicts r1"), row("r3", core=True))
    assert [(g.statistics.count, g.statistics.mape) for g in summary.overall] == [(2, 0.0)]
    assert [(g.statistics.count, g.statistics.mape) for g in summary.core] == [(1, 0.0)]
    assert summary.suspect == {"train": 1}


def test_records_of_no_kind_are_counted() -> None:
    assert judged(Located("a:1", {"kind": "headline"})).others == {
        "'headline': no time, memory or rate that the model predicts": 1
    }


def test_the_mean_of_sources_weighs_each_once() -> None:
    rows = [row(f"a{i}", says=1.1) for i in range(9)] + [row("b", says=1.5, source="B")]
    summary = summed(*rows)
    assert summary.overall[0].statistics.mape == pytest.approx(0.14)
    assert summary.by_source("train") == pytest.approx(0.3)
    assert summary.by_source("train", core=True) is None
    overall = summary.to_json()["overall"]["train"]
    assert overall["mape_by_source"] == pytest.approx(0.3)
    assert overall["ordered_by_source"] is None


def test_order_within_sources() -> None:
    rows = [row("a1", 1.0, 1.0), row("a2", 2.0, 2.0), row("b1", 1.0, 9.0, "B"), row("b2", 2.0, 8.0, "B")]
    overall = summed(*rows).to_json()["overall"]["train"]
    assert overall["ordered_by_source"] == pytest.approx(1 / 2)
    assert overall["ordered"] == pytest.approx(2 / 4)  # and a1–b2 right, b1–a2 wrong


def test_labels_count_in_what_fits_and_not_in_errors() -> None:
    summary = summed(
        peak("m1", True, measured=50.0 * GIB),
        peak("m2", False, status="oom"),
        peak("m3", True, status="crashed_or_oom"),
    )
    (group,) = summary.overall
    assert (group.statistics.count, group.statistics.predicted) == (1, 1)
    assert (group.fits.ran, group.fits.oom, group.fits.crashed) == ((1, 0), (0, 1), (1, 0))
    assert summary.unpredicted == ()


def test_a_run_that_failed_has_no_figure_to_predict() -> None:
    failed = row("r1", says=None, why="the run failed", measured={"failed": True}, target={})
    with_figure = row("r2")
    summary = summed(failed, with_figure)
    assert (summary.overall[0].statistics.count, summary.overall[0].statistics.predicted) == (1, 1)
    assert summary.unpredicted[0].reason == "the run failed"


def test_worst_weighs_twice_and_half_alike() -> None:
    summary = summed(row("twice", says=2.0), row("third", says=1 / 3), row("near", says=1.1))
    assert [one.outcome.id for one in summary.overall[0].worst(2)] == ["third", "twice"]


def test_json_has_sources_overall_and_core() -> None:
    summary = summed(
        row("r1", core=True, says=1.1), row("r2", source="B"), peak("m1", True, measured=40.0 * GIB)
    )
    data = json.loads(json.dumps(summary.to_json(worst=1)))
    assert list(data["sources"]) == ["A", "B", "A [memory]"]
    wanted = {"kind", "count", "predicted", "mape", "median_ape", "p90_ape", "bias", "spearman"}
    for entry in (*data["sources"].values(), *data["overall"].values(), *data["core"].values()):
        assert wanted <= entry.keys()
    assert list(data["overall"]) == ["train", "memory"]
    assert list(data["core"]) == ["train"]
    assert data["sources"]["A"]["mape"] == pytest.approx(0.1)
    assert data["sources"]["A"]["worst"][0]["id"] == "r1"
    assert data["overall"]["memory"]["fits"]["ran"] == {"fits": 1, "does_not_fit": 0}


def test_select_by_kind_and_source() -> None:
    rows = [row("r1"), row("r2", source="Broad"), peak("m1", True)]
    assert [r.id for r in select(rows, ["train"])] == ["r1", "r2"]
    assert [r.id for r in select(rows, (), ["broa"])] == ["r2"]
    with pytest.raises(InputError, match="Did you mean 'train'"):
        select(rows, ["trian"])
    with pytest.raises(InputError, match="Did you mean 'Broad'"):
        select(rows, (), ["Broadd"])


def test_report_shows_figures_worst_and_reasons() -> None:
    summary = summed(
        row("r1", says=1.25, core=True), row("r2", refuse="no layers given"), peak("m1", False, measured=GIB)
    )
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in report(summary, worst=1, depth=1, predict=readers()):
        console.print(part)
    text = console.export_text()
    for words in ("25.0%", "backward", "r1  +25%", "1  train: no layers given  [r2]", "100.0% false alarms"):
        assert words in text


def invoke(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    for name, reader in (("train", train), ("memory", memory)):
        monkeypatch.setattr(importlib.import_module(f"rpeg.validation.{name}"), "predict", reader)
    return CliRunner().invoke(main.make_app(), ["validate", *arguments])


def written(directory: Path, *rows: Located) -> str:
    file = directory / "rows.jsonl"
    file.write_text("".join(json.dumps(one.record) + "\n" for one in rows))
    return str(file)


def test_command_prints_json_and_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, row("r1", says=1.5), row("r2"))
    done = invoke(monkeypatch, file, "--json", "--rows", str(tmp_path / "rows.csv"))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["overall"]["train"]["mape"] == pytest.approx(0.25)
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["id", "r1", "r2"]


def test_command_refuses_a_place_for_rows_that_does_not_exist(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main.make_app(), ["validate", str(tmp_path), "--rows", str(tmp_path / "no/rows.csv")]
    )
    assert done.exit_code == 2
    assert "--rows needs a directory" in done.stderr


def test_command_prints_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = invoke(monkeypatch, written(tmp_path, row("r1", says=1.5)), "--worst", "1", "--depth", "0")
    assert done.exit_code == 0, done.output
    assert "50.0%" in done.stdout
    assert "Furthest off, train" in done.stdout
    assert "backward" not in done.stdout


def test_command_ends_with_1_on_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = invoke(monkeypatch, written(tmp_path, row("r1", crash="x"), row("r2", crash="x"), row("r3")))
    assert done.exit_code == 1
    assert "bug on train record r1 and 1 others: KeyError: 'x'" in done.stderr
    assert "predicted" in done.stdout


def test_command_ends_with_2_on_a_broken_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"target":\n')
    done = invoke(monkeypatch, str(file))
    assert done.exit_code == 2
    assert f"{file}:1 is not JSON" in done.stderr


def test_command_ends_with_2_without_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n')
    done = invoke(monkeypatch, str(file))
    assert done.exit_code == 2
    assert "no record to predict" in done.stderr
