"""Commands on a job for described hardware."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rpeg.cli.main import make_app

ROOT = Path(__file__).parents[2]


def rpeg(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), arguments)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(job file, plan file) of GRPO on one node."""
    directory = tmp_path_factory.mktemp("planned")
    text = (ROOT / "examples" / "plan-gh200.yaml").read_text()
    text = (
        text.replace("alps: 4", "dgx-h100: 1")
        .replace("prompts: 128", "prompts: 32")
        .replace("staleness: 1", "staleness: 0")
    )
    job, plan = directory / "job.yaml", directory / "plan.json"
    job.write_text(text)
    result = rpeg("plan", str(job), "--out", str(plan))
    assert result.exit_code == 0, result.output
    assert "device-hours" in result.output
    assert "memory left" in result.output
    return job, plan


def test_plans_are_explained_simulated_and_proven(planned: tuple[Path, Path], tmp_path: Path) -> None:
    job, plan = map(str, planned)
    explained = rpeg("explain", plan, "--job", job, "--depth", "1")
    assert explained.exit_code == 0
    assert "train_actor" in explained.output
    out = str(tmp_path / "simulated")
    assert rpeg("simulate", plan, "--job", job, "--out", out, "--steps", "3").exit_code == 0
    proven = rpeg("verify", out)
    assert proven.exit_code == 0
    assert "proven" in proven.output


def test_a_job_is_checked_without_its_weights(planned: tuple[Path, Path]) -> None:
    checked = rpeg("check", str(planned[0]))
    assert checked.exit_code == 0, checked.output
    assert "8 devices (h100-sxm), to plan for" in checked.output
    assert "8.03B parameters" in checked.output


def test_it_is_not_trained_here(planned: tuple[Path, Path], tmp_path: Path) -> None:
    refused = rpeg("train", str(planned[0]), "--output", str(tmp_path / "run"))
    assert refused.exit_code == 2
    assert "planned for and not run here" in refused.output
    assert "weights of actor" in refused.output
    assert not (tmp_path / "run").exists()


def test_a_plan_for_other_hardware_is_refused(planned: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(planned[0].read_text().replace("dgx-h100: 1", "dgx-a100: 1"))
    refused = rpeg("explain", str(planned[1]), "--job", str(other))
    assert refused.exit_code == 2
    assert "dgx-h100 × 1" in refused.output


@pytest.mark.parametrize("template", ["plan-h100", "plan-gh200"])
def test_templates_to_plan_are_the_examples(template: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    written = rpeg("init", "--template", template, str(file))
    assert written.exit_code == 0
    assert "Next: rpeg plan" in written.output
    assert file.read_text() == (ROOT / "examples" / f"{template}.yaml").read_text()
    assert rpeg("check", "--quick", str(file)).exit_code == 0
