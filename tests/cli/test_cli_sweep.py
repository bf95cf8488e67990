"""`rpeg sweep` from the command line."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rpeg.cli._axes import counts, names, prices
from rpeg.cli.main import INTERRUPTED, make_app
from rpeg.errors import InputError
from rpeg.search import Problem, Ranked, plan_job, sweep

JOB = """
name: small
algorithm: {name: grpo}
models: {actor: {path: Qwen2.5-0.5B}}
cluster: {dgx-h100: 1}
prices: {h100: 2.5}
batch: {prompts: 8, samples_per_prompt: 2, minibatches: 2, microbatch: 4}
lengths:
  max_prompt: 128
  max_response: 256
  expected_prompt: {mean: 60}
  expected_response: {mean: 60, p95: 120}
"""


def rpeg(*arguments: object) -> Result:
    return CliRunner().invoke(make_app(), ["sweep", "--processes", "1", *map(str, arguments)])


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("swept") / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture(scope="module")
def kept(job: Path) -> Path:
    """Rows of 1 and 2 devices."""
    rows = job.parent / "rows.jsonl"
    plot = job.parent / "plot.svg"
    found = rpeg(job, "--devices", "1..2", "--rows", rows, "--plot", plot, "--target-seconds", "1e-6")
    assert found.exit_code == 0, found.output
    assert "none of these is fast enough" in found.output
    told = found.stderr.splitlines()
    assert re.fullmatch(r"1 of 2: 1 × h100-sxm, staleness 0: [\d.]+ m?s \([\d.]+ m?s\)", told[0])
    assert told[1].startswith("2 of 2: 2 × h100-sxm")
    assert plot.read_text().startswith("<svg")
    return rows


def test_processes_plan_the_same_rows(kept: Path, job: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    found = rpeg(job, "--devices", "1..2", "--rows", rows, "--processes", "2")
    assert found.exit_code == 0, found.output

    def outcomes(path: Path) -> list[object]:
        return [json.loads(line)["outcome"] for line in path.read_text().splitlines()][:2]

    assert outcomes(rows) == outcomes(kept)


def test_rows_are_kept_and_resumed_with_more(kept: Path, job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = []

    def counted(given: Problem, **options: object) -> Ranked:
        planned.append(len(given.cluster))
        return plan_job(given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep, "plan_job", counted)
    kept.write_text(kept.read_text() + '{"key": "cut')  # a line that was being written
    found = rpeg(job, "--devices", "1,2,4", "--rows", kept, "--resume", "--csv")
    assert found.exit_code == 0, found.output
    assert planned == [4]
    rows = list(csv.DictReader(io.StringIO(found.stdout)))
    assert [row["devices"] for row in rows] == ["1", "2", "4"]
    assert [json.loads(line)["devices"] for line in kept.read_text().splitlines()] == [1, 2, 4]
    monkeypatch.setattr(sweep, "plan_job", None)
    again = rpeg(job, "--devices", "1..4", "--rows", kept, "--resume", "--json", "--target-hours", "24")
    value = json.loads(again.stdout)
    assert value["rows"][value["choice"]["row"]]["plan"]
    assert value["choice"]["target_seconds"] == pytest.approx(86.4)
    assert value["rows"][0]["price_per_1000_steps"] > 0


@pytest.mark.parametrize("broken", ["{", "{}", "3"])
def test_a_broken_line_is_named_with_the_way_out(broken: str, kept: Path, job: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(f"{broken}\n{kept.read_text()}")
    found = rpeg(job, "--devices", "1..2", "--rows", rows, "--resume")
    assert found.exit_code == 2
    for words in (f"{rows}, line 1", "Delete that line", "without --resume"):
        assert words in found.output
    assert rows.read_text().startswith(broken)


def test_resumed_and_interrupted_at_once_no_row_is_lost(
    kept: Path, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, seen = tmp_path / "rows.jsonl", []
    rows.write_text(kept.read_text())

    def interrupted(*_: object, **__: object) -> Ranked:
        seen.append(rows.read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "plan_job", interrupted)
    assert rpeg(job, "--devices", "8", "--rows", rows, "--resume").exit_code == INTERRUPTED
    assert seen == [kept.read_text()]
    assert rows.read_text() == kept.read_text()


def test_interrupted_it_shows_what_it_has(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(given: Problem, **options: object) -> Ranked:
        if len(given.cluster) == 2:
            raise KeyboardInterrupt
        return plan_job(given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sweep, "plan_job", interrupted)
    rows = tmp_path / "rows.jsonl"
    found = rpeg(job, "--devices", "1..4", "--rows", rows)
    assert found.exit_code == INTERRUPTED
    assert "colocated" in found.stdout
    assert "1 of 3 rows are in" in found.stderr
    assert len(rows.read_text().splitlines()) == 1


def test_axes_are_combined(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(given: Problem, **_: object) -> Ranked:
        cluster, work = given.cluster, given.workload
        each = cluster.price_per_hour
        asked.append(
            (
                work.samples_per_prompt,
                round(work.response_lengths.mean),
                cluster.kinds[0].name,
                len(cluster),
                None if each is None else each / len(cluster),
                given.permissions.staleness,
            )
        )
        raise InputError("not planned here")

    monkeypatch.setattr(sweep, "plan_job", noted)
    found = rpeg(
        *(job, "--devices", "8,16", "--kind", "h100,h200", "--staleness", "0,2", "--samples", "2,4"),
        *("--response", "100,200", "--price", "h200=3", "--rows", tmp_path / "rows.jsonl"),
    )
    assert found.exit_code == 2, found.output
    assert "not planned here" in found.output
    assert "none of these has a plan" in found.output
    kinds = (("h100-sxm", 2.5), ("h200", 3.0))
    assert asked == [
        (samples, mean, kind, devices, price, staleness)
        for samples in (2, 4)
        for mean in (100, 200)
        for kind, price in kinds
        for devices in (8, 16)
        for staleness in (0, 2)
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to sweep"),
        (("--devices", "8-64"), "'8-64' is no number"),
        (("--devices", "64..8"), "64..8 has no values"),
        (("--devices", "0"), "from 1"),
        (("--kind", "h1000"), "Did you mean"),
        (("--devices", "8", "--price", "h200=3"), "add h200 to --kind"),
        (("--devices", "8", "--price", "h100"), "Write --price h100=2.5"),
        (("--devices", "8", "--price", "h100=-1"), "at least 0"),
        (("--devices", "8", "--target-seconds", "1", "--target-hours", "1"), "both given"),
        (("--devices", "8", "--target-seconds", "0"), "above 0"),
        (("--devices", "8", "--rows", "/"), "Choose another file with --rows"),
    ],
)
def test_wrong_words_are_named(arguments: tuple[str, ...], words: str, job: Path, tmp_path: Path) -> None:
    if "--rows" not in arguments:
        arguments = (*arguments, "--rows", str(tmp_path / "rows.jsonl"))
    found = rpeg(job, *arguments)
    assert found.exit_code == 2, found.output
    assert words in " ".join(found.output.split())


def test_the_help_teaches() -> None:
    found = rpeg("--help")
    assert "rpeg sweep job.yaml --devices 8..2048" in found.output
    assert "A row takes seconds to a minute" in found.output


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", [8]),
        ("16, 8,8", [8, 16]),
        ("8..64", [8, 16, 32, 64]),
        ("8..100", [8, 16, 32, 64]),
        ("8,16,…,64", [8, 16, 32, 64]),
        ("4,8,...,32,40", [4, 8, 16, 32, 40]),
    ],
)
def test_lists_and_ranges(text: str, values: list[int]) -> None:
    assert counts("--devices", text) == values


def test_too_many_values_are_refused() -> None:
    with pytest.raises(InputError, match="at most 64"):
        counts("--devices", ",".join(map(str, range(1, 99))))


def test_names_and_prices() -> None:
    assert names("h100, h200,,h100") == ["h100", "h200"]
    assert prices("--price", ["h100=2.5,h200=3", "b200=4"]) == {"h100": 2.5, "h200": 3.0, "b200": 4.0}
