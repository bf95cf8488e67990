"""Jobs on this machine whose models are cut: from `check` to `compare`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from rpeg.cli.main import make_app
from rpeg.plan import read_plan
from runtime.runs import make_job, tiny_model

LAYOUTS = {
    "tensors": {
        "generate": {"tp": 2},
        "reference": {"cp": 2},
        "train_actor": {"tp": 2, "recompute": "full"},
    },
    "pipeline": {
        "reference": {"tp": 2, "offload": "all"},
        "train_actor": {"pp": 2, "offload": "optimizer"},
    },
}


def rpeg(*arguments: str | Path) -> str:
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_job_with_cut_models_is_checked_planned_trained_verified_and_compared(
    name: str, tmp_path: Path
) -> None:
    job = make_job(tiny_model(tmp_path / "model"), tmp_path / "run", algorithm="grpo", dtype="float32")
    value = {**job.model_dump(mode="json", exclude_defaults=True), "plan": {"layouts": LAYOUTS[name]}}
    file, plan = tmp_path / "job.yaml", tmp_path / "plan.json"
    file.write_text(yaml.safe_dump(value))
    assert "is a valid job" in rpeg("check", file)
    rpeg("plan", file, "--no-measure", "--out", plan)
    planned = read_plan(plan)
    for stage, keys in LAYOUTS[name].items():
        assignment = planned.assignment(stage)
        for key, degree in keys.items():
            assert getattr(assignment.parallelism, key, getattr(assignment, key, None)) == degree
    assert "train_actor" in rpeg("explain", plan, "--job", file)
    rpeg("train", file, "--plan", plan)
    assert "proven" in rpeg("verify", tmp_path / "run")
    assert "train_actor" in rpeg("compare", tmp_path / "run")


@pytest.mark.parametrize(
    ("layouts", "said"),
    [
        ({"generate": {"pp": 2}}, "generation is cut by tp alone"),
        ({"train_actor": {"ep": 2}}, "has no experts to deal to ep 2"),
    ],
)
def test_check_refuses_what_would_not_run(
    layouts: dict[str, dict[str, int]], said: str, tmp_path: Path
) -> None:
    job = make_job(tiny_model(tmp_path / "model"), tmp_path / "run", algorithm="grpo")
    file = tmp_path / "job.yaml"
    value = {**job.model_dump(mode="json", exclude_defaults=True), "plan": {"layouts": layouts}}
    file.write_text(yaml.safe_dump(value))
    result = CliRunner().invoke(make_app(), ["check", str(file)], env={"COLUMNS": "200"})
    assert result.exit_code != 0
    assert said in " ".join(result.output.split())
