"""Commands on a job for described hardware."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rpeg.cli.main import make_app
from rpeg.plan import read_plan, write_plan

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


def test_a_plan_that_does_not_fit_says_so_and_is_worked_out_all_the_same(
    planned: tuple[Path, Path], tmp_path: Path
) -> None:
    plan, full = read_plan(planned[1]), tmp_path / "full.json"
    greedy = (replace(a, microbatch=512) if a.stage == "train_actor" else a for a in plan.assignments)
    write_plan(replace(plan, assignments=tuple(greedy)), full)
    given = (str(full), "--job", str(planned[0]))
    for command in (
        ("explain", *given, "--depth", "0"),
        ("simulate", *given, "--out", str(tmp_path / "out")),
    ):
        said = rpeg(*command)
        assert said.exit_code == 0, said.output
        assert re.fullmatch(
            r"warning: the plan does not fit: device \d+ lacks .* GiB in phase .*\n", said.stderr
        )
    assert not rpeg("explain", str(planned[1]), "--job", str(planned[0]), "--depth", "0").stderr


def test_a_stages_tree_is_shown_alone(planned: tuple[Path, Path]) -> None:
    job, plan = map(str, planned)
    alone = rpeg("explain", plan, "--job", job, "--stage", "generate", "--depth", "2")
    assert alone.exit_code == 0
    assert "generate" in alone.output
    assert "train_actor\n" not in alone.output
    wrong = rpeg("explain", plan, "--job", job, "--stage", "generat")
    assert wrong.exit_code == 2
    assert "Did you mean 'generate'" in wrong.output


def _with_layouts(planned: tuple[Path, Path], directory: Path, layouts: str) -> Path:
    file = directory / "own.yaml"
    file.write_text(planned[0].read_text() + f"plan: {{layouts: {layouts}}}\n")
    return file


def test_layouts_that_a_job_gives_are_kept_and_drawn(planned: tuple[Path, Path], tmp_path: Path) -> None:
    job = _with_layouts(planned, tmp_path, "{generate: {devices: 0-3, tp: 2}, train_actor: {devices: 4}}")
    plan, picture = tmp_path / "own.json", tmp_path / "own.svg"
    made = rpeg("plan", str(job), "--out", str(plan), "--picture", str(picture))
    assert made.exit_code == 0, made.output
    assert "▶ as the job says" in made.output
    assert "best found: " in made.output
    assert picture.read_text().startswith("<svg")
    assert read_plan(plan).assignment("generate").parallelism.tp == 2
    explained = rpeg("explain", str(plan), "--job", str(job), "--depth", "0")
    assert explained.exit_code == 0, explained.output


def test_layouts_that_do_not_fit_keep_no_plan_and_say_what_is_missing(
    planned: tuple[Path, Path], tmp_path: Path
) -> None:
    job = _with_layouts(planned, tmp_path, "{train_actor: {devices: [0], microbatch: 16, recompute: none}}")
    plan = tmp_path / "own.json"
    made = rpeg("plan", str(job), "--out", str(plan))
    assert made.exit_code == 2
    assert "GiB" in made.output.splitlines()[-1]
    assert not plan.exists()


def test_files_that_cannot_be_written_are_refused_before_the_work(
    planned: tuple[Path, Path], tmp_path: Path
) -> None:
    for option in ("--out", "--picture"):
        refused = rpeg("plan", str(planned[0]), option, str(tmp_path / "no" / "file"))
        assert refused.exit_code == 2
        assert "no directory" in refused.output


def test_layouts_are_checked_against_their_models(planned: tuple[Path, Path], tmp_path: Path) -> None:
    said = rpeg("check", str(_with_layouts(planned, tmp_path, "{generate: {devices: 4, tp: 4, pp: 1}}")))
    assert said.exit_code == 0
    assert "generate: devices 4, tp 4, pp 1" in said.output
    refused = rpeg("check", str(_with_layouts(planned, tmp_path, "{generate: {devices: 3, tp: 3}}")))
    assert refused.exit_code == 2
    assert "tp = 3" in refused.output
    assert "32" in refused.output


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


def test_a_cluster_may_have_the_hardware_but_not_weights_that_are_nowhere(
    planned: tuple[Path, Path], tmp_path: Path
) -> None:
    refused = rpeg("train", str(planned[0]), "--address", "ray://head:10001")
    assert refused.exit_code == 2
    assert "weights of actor" in refused.output
    job = tmp_path / "job.yaml"
    prompts = ROOT / "src" / "rpeg" / "assets" / "chain_sum" / "train.jsonl"
    job.write_text(
        "name: test\nalgorithm: {name: grpo}\nmodels: {actor: {path: 'bundled:tiny'}}\ncluster: {h100: 1}\nsteps: 1\n"
        f"data: {{train: {prompts}}}\nreward: {{name: numeric}}\noptimizer: {{lr: 1.0e-5}}\n"
        "batch: {prompts: 4, samples_per_prompt: 2, minibatches: 1, microbatch: 2}\n"
        f"lengths: {{max_prompt: 16, max_response: 8}}\noutput: {tmp_path / 'run'}\n"
    )
    assert "--address` runs it on a Ray cluster" in " ".join(rpeg("train", str(job)).output.split())
    refused = rpeg("train", str(job), "--address", "ray://head:10001")
    assert "run rpeg on a node of the cluster" in " ".join(refused.output.split())


def test_it_is_refused_before_what_training_needs_is_asked_for(
    planned: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rpeg.runtime", None)
    assert "planned for and not run here" in rpeg("train", str(planned[0])).output


def test_a_plan_for_other_hardware_is_refused(planned: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(planned[0].read_text().replace("dgx-h100: 1", "dgx-a100: 1"))
    refused = rpeg("explain", str(planned[1]), "--job", str(other))
    assert refused.exit_code == 2
    assert "dgx-h100 × 1" in refused.output


@pytest.mark.parametrize("template", ["plan-h100", "plan-gh200", "plan-layouts"])
def test_templates_to_plan_are_the_examples(template: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    written = rpeg("init", "--template", template, str(file))
    assert written.exit_code == 0
    assert "Next: rpeg plan" in written.output
    assert file.read_text() == (ROOT / "examples" / f"{template}.yaml").read_text()
    assert rpeg("check", "--quick", str(file)).exit_code == 0
