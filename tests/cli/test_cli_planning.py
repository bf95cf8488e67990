"""From a job to its calibration, and to the plan that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rpeg import calibrate
from rpeg.cli._planning import calibration_of
from rpeg.cli.main import make_app
from rpeg.errors import RunError
from rpeg.job import parse_job
from rpeg.plan import plan_to_json, read_plan

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo.yaml"


def test_planning_goes_on_where_the_machine_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RunError("a calibration worker was killed")

    monkeypatch.setattr(calibrate, "cached", lambda *_: None)
    monkeypatch.setattr(calibrate, "measure", fails)
    said: list[str] = []
    job = parse_job(
        EXAMPLE.read_text().replace("cluster: {cpu: 2}", "cluster: {cpu: 1}"), base_dir=EXAMPLE.parent
    )
    assert calibration_of(job, said.append) is None
    assert "a calibration worker was killed" in said[-1]
    assert "rooflines" in said[-1]


@pytest.fixture
def local_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """GRPO of the bundled model on one process, which is not measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text = EXAMPLE.with_name("grpo.yaml").read_text().replace("cluster: {cpu: 2}", "cluster: {cpu: 1}")
    file = tmp_path / "job.yaml"
    file.write_text(text + "plan: {layouts: {train_actor: {microbatch: 4}}}\n")
    return file


def test_the_plan_of_the_jobs_layouts_is_kept_unless_another_is_picked(
    local_job: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    own = CliRunner().invoke(
        make_app(), ["plan", str(local_job), "--no-measure", "--out", str(plan), "--json"]
    )
    assert own.exit_code == 0, own.output
    value = json.loads(own.stdout)
    assert value["chosen"]["name"] == "as the job says"
    assert read_plan(plan).assignment("train_actor").microbatch == 4
    arguments = ["plan", str(local_job), "--no-measure", "--out", str(plan), "--pick", "1"]
    best = CliRunner().invoke(make_app(), arguments)
    assert best.exit_code == 0, best.output
    assert "as the job says" in best.output
    assert f"Plan 1 is in {plan}." in best.output
    assert plan_to_json(read_plan(plan)) != value["chosen"]["plan"]
