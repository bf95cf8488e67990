"""`rpeg init`, `rpeg check` and the job files in `examples`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from plans import make_plan, ppo_graph
from rpeg.cli import main
from rpeg.errors import JobError
from rpeg.job import parse_job
from rpeg.job.bundled import ASSETS
from rpeg.job.reward_job import load_reward_job
from rpeg.plan import plan_to_json

EXAMPLES = Path(__file__).parents[2] / "examples"


def rpeg(*arguments: str) -> Result:
    return CliRunner().invoke(main.make_app(), list(arguments))


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_init_writes_the_example(algorithm: str, tmp_path: Path) -> None:
    file = tmp_path / "new" / "job.yaml"
    assert rpeg("init", "--algorithm", algorithm, str(file)).exit_code == 0
    assert file.read_text() == (EXAMPLES / f"{algorithm}.yaml").read_text()


def test_init_does_not_overwrite(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("mine")
    refused = rpeg("init", str(file))
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert file.read_text() == "mine"
    assert rpeg("init", "--force", str(file)).exit_code == 0
    assert file.read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--algorithm", "pppo", "job.yaml"], "Did you mean 'ppo'"),
        (["."], "is a directory"),
        ([f"{__file__}/job.yaml"], "cannot be written"),
    ],
)
def test_init_refuses(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = rpeg("init", *arguments)
    assert refused.exit_code == 2
    assert says in refused.output
    assert list(tmp_path.iterdir()) == []


def test_check_says_what_was_understood(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_two_cores(monkeypatch)
    monkeypatch.chdir(tmp_path)
    result = rpeg("check", "--quick", str(EXAMPLES / "ppo.yaml"))
    assert result.exit_code == 0, result.output
    for words in (
        "40 steps",
        "16 prompts × 8 = 128 samples",
        "4 × 32 samples an epoch",
        "2 × cpu",
        "is a valid job",
    ):
        assert words in result.output
    assert list(tmp_path.iterdir()) == [], "checking makes nothing"


def test_check_says_what_is_not_usual_and_what_is_assumed(tmp_path: Path) -> None:
    lines = [
        line
        for line in (EXAMPLES / "plan-h100.yaml").read_text().splitlines()
        if "expected_response" not in line
    ]
    job = tmp_path / "job.yaml"
    job.write_text("\n".join(lines).replace("kl_coefficient: 0.001", "kl_coefficient: 0.02"))
    said = rpeg("check", str(job)).output
    assert "ppo: kl_coefficient 0.02, the rest by default" in said
    assert "prompt ≤ 1024 (300 on average), response ≤ 4096 tokens" in said
    assert "responses: lognormal of mean 2048 tokens, half of max_response" in said
    assert "prompts: " not in said


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_valid(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_two_cores(monkeypatch)
    try:
        job = load_reward_job(file) if file.stem == "reward-model" else parse_job(*_example(file, tmp_path))
    except JobError as error:
        if "no installed package" in str(error):
            pytest.skip(str(error))
        raise
    assert job.name


def _example(file: Path, directory: Path) -> tuple[str, str, Path]:
    """A job file's text, name and place; a reward model that is still to be trained counts as trained."""
    trained = directory / "reward-model"
    trained.mkdir()
    config = {"architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "reward"}}
    tiny = json.loads((ASSETS / "tiny" / "config.json").read_text())
    (trained / "config.json").write_text(json.dumps(tiny | config))
    text = file.read_text().replace("../runs/reward-arithmetic/model", str(trained))
    return text, str(file), file.parent


def pretend_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples ask for two."""
    monkeypatch.setattr("rpeg.job.rules.cores", lambda: 2)


def test_a_plan_that_lacks_a_stage_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_two_cores(monkeypatch)
    graph = ppo_graph()
    value = plan_to_json(make_plan(graph, {s.name: (0,) for s in graph.stages}))
    value["assignments"] = value["assignments"][1:]
    (tmp_path / "plan.json").write_text(json.dumps(value))
    refused = rpeg(
        "train",
        str(EXAMPLES / "ppo.yaml"),
        "--plan",
        str(tmp_path / "plan.json"),
        "-o",
        str(tmp_path / "run"),
    )
    assert refused.exit_code == 2
    assert "has no assignment" in refused.output


def test_one_process_is_no_place_for_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_two_cores(monkeypatch)
    refused = rpeg("train", str(EXAMPLES / "grpo.yaml"), "--in-process")
    assert refused.exit_code == 2
    assert "the job has 2" in refused.output
    assert "cluster: {cpu: 1}" in refused.output


@pytest.mark.parametrize(
    "options", [("--in-process", "--address", "10.0.0.1:6379"), ("--resume", "--overwrite")]
)
def test_train_refuses_what_contradicts_itself(options: tuple[str, ...]) -> None:
    refused = rpeg("train", str(EXAMPLES / "grpo.yaml"), *options)
    assert refused.exit_code == 2
    assert all(option in refused.output for option in options if option.startswith("--"))
    assert "choose one" in refused.output
