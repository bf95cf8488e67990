"""`train_reward`: learns, resumes as if nothing had been, and writes what Hugging Face loads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from typer.testing import CliRunner

from rpeg.backends.reward_model import load_reward_model
from rpeg.backends.training.trainer import Trainer
from rpeg.cli import main
from rpeg.errors import InputError
from rpeg.job.reward_job import RewardJob, parse_reward_job
from rpeg.runtime import reward_training
from rpeg.runtime.reward_training import train_reward
from runtime.runs import tiny_model


@dataclass
class Told:
    steps: list[int] = field(default_factory=list)
    pairs: dict[str, tuple[int, Mapping[str, int]]] = field(default_factory=dict)

    def on_pairs(self, split: str, kept: int, dropped: Mapping[str, int]) -> None:
        self.pairs[split] = (kept, dropped)

    def on_step(self, step: int, steps: int, metrics: Mapping[str, float]) -> None:
        self.steps.append(step)

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None: ...


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("reward") / "model")


def make_job(model: Path, directory: Path, output: str = "run") -> RewardJob:
    """Ten steps; the chosen response is the longer one."""
    for name, count in (("train", 40), ("heldout", 8)):
        rows = [{"prompt": f"{n} is", "chosen": "good" * 2, "rejected": "bad"} for n in range(count)]
        rows.append({"prompt": "x", "chosen": "same", "rejected": "same"})
        (directory / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = f"""
name: test
model: {{path: {model}}}
dtype: float64
data: {{train: train.jsonl, heldout: heldout.jsonl}}
batch: {{pairs: 8, microbatch: 3}}
lengths: {{max_tokens: 24}}
optimizer: {{lr: 1e-2, warmup_steps: 2}}
epochs: 2
seed: 5
evaluation: {{every: 5}}
checkpoint: {{every: 4}}
output: {directory / output}
"""
    return parse_reward_job(text, "test.yaml", directory)


def weights(directory: Path) -> dict[str, torch.Tensor]:
    model = AutoModelForSequenceClassification.from_pretrained(directory, dtype=torch.float64)
    return dict(model.state_dict())


def test_learns_and_exports(model: Path, tmp_path: Path) -> None:
    told = Told()
    outcome = train_reward(make_job(model, tmp_path), told)
    assert outcome.finished
    assert told.steps == list(range(10))
    assert told.pairs == {"train": (40, {"equal responses": 1}), "heldout": (8, {"equal responses": 1})}
    assert sorted(outcome.evaluations) == [0, 5, 10]
    assert outcome.evaluations[10]["accuracy"] == 1.0
    assert outcome.evaluations[10]["loss"] < 0.5 * outcome.evaluations[0]["loss"]
    exported = outcome.directory / "model"
    trained = load_reward_model(str(exported), dtype=torch.float64)
    assert trained.hf.config.num_labels == 1
    assert AutoTokenizer.from_pretrained(exported).eos_token == "</s>"
    lines = [json.loads(line) for line in (outcome.directory / "evaluations.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 5, 10]


class Interrupt(Told):
    """Ctrl-C in the sixth step."""

    def on_step(self, step: int, steps: int, metrics: Mapping[str, float]) -> None:
        super().on_step(step, steps, metrics)
        if step == 5:
            reward_training.signal.raise_signal(reward_training.signal.SIGINT)


def test_resumed_it_ends_as_if_never_interrupted(model: Path, tmp_path: Path) -> None:
    whole = train_reward(make_job(model, tmp_path, "whole"), Told())
    job = make_job(model, tmp_path, "parts")
    first = train_reward(job, Interrupt())
    assert (first.steps, first.finished) == (6, False)
    assert not (first.directory / "model").exists()
    with pytest.raises(InputError, match="--resume"):
        train_reward(job, Told())
    other = job.model_copy(update={"seed": 6})
    with pytest.raises(InputError, match="seed was 5 and is 6"):
        train_reward(other, Told(), resume=True)
    told = Told()
    second = train_reward(job, told, resume=True)
    assert told.steps == [6, 7, 8, 9]
    assert second.evaluations[10] == whole.evaluations[10]
    expected = weights(whole.directory / "model")
    assert all(
        torch.equal(tensor, expected[name]) for name, tensor in weights(second.directory / "model").items()
    )
    steps = [json.loads(line) for line in (second.directory / "metrics.jsonl").read_text().splitlines()]
    before = [json.loads(line) for line in (whole.directory / "metrics.jsonl").read_text().splitlines()]
    assert steps == before, "learning rates included"
    with pytest.raises(InputError, match="has done 10 of 10 steps"):
        train_reward(job, Told(), resume=True)


def test_the_exported_model_scores_as_the_trained_one(model: Path, tmp_path: Path) -> None:
    from rpeg.backends.data.pairs import as_samples

    outcome = train_reward(make_job(model, tmp_path), Told())
    rows = [[5, 6, 7], [8, 9, 10, 11, 258]]
    own = AutoModelForSequenceClassification.from_pretrained(
        outcome.directory / "model", dtype=torch.float64
    ).eval()
    with torch.no_grad():
        expected = [float(own(input_ids=torch.tensor([row])).logits[0, 0]) for row in rows]
    loaded = Trainer(load_reward_model(str(outcome.directory / "model"), dtype=torch.float64))
    assert loaded.scores(as_samples(rows), microbatch=2).tolist() == pytest.approx(expected, abs=1e-12)


def test_the_command(model: Path, tmp_path: Path) -> None:
    from rpeg.job.reward_job import dump_reward_job

    file = tmp_path / "reward.yaml"
    file.write_text(dump_reward_job(make_job(model, tmp_path)))
    result = CliRunner().invoke(main.make_app(), ["train-reward", str(file)])
    assert result.exit_code == 0, result.output
    assert "train: 40 pairs, 1 dropped: equal responses" in result.output
    assert "held-out accuracy" in result.output
    again = CliRunner().invoke(main.make_app(), ["train-reward", str(file)])
    assert (again.exit_code, "--overwrite" in again.output) == (2, True)
