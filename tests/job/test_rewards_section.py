"""The `reward` section: one or several, a reward model, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_files import write_job, write_model

from rpeg.errors import JobError
from rpeg.job import dump_job, load_job, parse_job
from rpeg.job.reward_job import dump_reward_job, load_reward_job, parse_reward_job

NUMERIC = {"name": "numeric"}


def write_reward_model(directory: Path, kind: str = "LlamaForSequenceClassification", labels: int = 1) -> str:
    model = write_model(directory)
    config = json.loads((model / "config.json").read_text())
    ids = {str(i): f"LABEL_{i}" for i in range(labels)}
    (model / "config.json").write_text(json.dumps({**config, "architectures": [kind], "id2label": ids}))
    return str(model)


def test_a_list_of_rewards_reads_back(tmp_path: Path) -> None:
    file = write_job(
        tmp_path,
        {"reward": [{"name": "numeric", "weight": 2}, {"name": "format", "tags": ["a", "b"], "weight": 0.5}]},
    )
    job = load_job(file)
    assert [(r.name, r.weight, r.import_from) for r in job.reward] == [
        ("numeric", 2.0, str(tmp_path)),
        ("format", 0.5, str(tmp_path)),
    ]
    assert parse_job(dump_job(job)) == job


def test_a_single_reward_is_written_as_it_was_read(tmp_path: Path) -> None:
    job = load_job(write_job(tmp_path))
    assert "reward:\n  name: numeric" in dump_job(job)
    assert job.evaluation_reward == job.reward


def test_a_reward_model_is_the_fourth_model(tmp_path: Path) -> None:
    path = write_reward_model(tmp_path / "classifier")
    changes = {
        "models.reward": {"path": path},
        "reward": [{"name": "model"}, {"name": "exact", "weight": 0.1}],
    }
    job = load_job(write_job(tmp_path, changes))
    assert [model.name for model in job.graph().models] == ["actor", "critic", "reference", "reward"]
    assert [r.name for r in job.evaluation_reward] == ["exact"]


MODEL = {"name": "model"}
BROKEN = {
    "unknown": ({"reward": {"name": "numerik"}}, "reward.name", "Did you mean 'numeric'"),
    "unknown in a list": ({"reward": [NUMERIC, {"name": "x"}]}, "reward.1.name", "no verifier 'x'"),
    "key in a list": ({"reward": [{**NUMERIC, "wieght": 1}]}, "reward.0.wieght", "Did you mean 'weight'"),
    "key alone": ({"reward": {**NUMERIC, "wieght": 1}}, "reward.wieght", "Did you mean 'weight'"),
    "empty list": ({"reward": []}, "reward", "or a list of such groups"),
    "a name": ({"reward": "numeric"}, "reward", "or a list of such groups"),
    "format of nothing": ({"reward": {"name": "format"}}, "reward.name", "either pattern"),
    "format of both": (
        {"reward": {"name": "format", "pattern": "a", "tags": ["a"]}},
        "reward.name",
        "either",
    ),
    "no expression": (
        {"reward": {"name": "format", "pattern": "(a"}},
        "reward.pattern",
        "no regular expression",
    ),
    "pattern of another": (
        {"reward": {**NUMERIC, "pattern": "a"}},
        "reward.pattern",
        "for the verifier format",
    ),
    "two policies": (
        {"reward": [{**NUMERIC, "truncated": "mask"}, {"name": "exact"}]},
        "reward.0.truncated",
        "all rewards must say it",
    ),
    "no model": ({"reward": MODEL, "evaluation.every": 0}, "models.reward", "is missing"),
    "no verifier": (
        {"reward": MODEL, "models.reward": {"path": "m"}},
        "evaluation.reward",
        "scored by verifiers",
    ),
    "model unused": ({"models.reward": {"path": "m"}}, "models.reward", "no reward is `model`"),
    "a language model": (
        {"reward": [MODEL, NUMERIC], "models.reward": {"path": "lm"}},
        "models.reward.path",
        "is LlamaForCausalLM, a sequence classifier is needed",
    ),
    "three labels": (
        {"reward": [MODEL, NUMERIC], "models.reward": {"path": "three"}},
        "models.reward.path",
        "has 3 labels",
    ),
    "greedy many": ({"evaluation.samples": 4}, "evaluation.temperature", "is 0, greedy"),
    "system without chat": ({"data.system": "Be brief."}, "data.system", "chat_template is false"),
    "unknown logger": ({"loggers": ["tensorbord"]}, "loggers.0", "must be one of tensorboard"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_named(case: str, tmp_path: Path) -> None:
    changes, key, says = BROKEN[case]
    write_reward_model(tmp_path / "m")
    write_reward_model(tmp_path / "lm", "LlamaForCausalLM")
    write_reward_model(tmp_path / "three", labels=3)
    file = write_job(tmp_path, changes)
    with pytest.raises(JobError) as error:
        load_job(file)
    found = [line for line in str(error.value).splitlines() if f":{key}" in line or f" {key}" in line]
    assert any(says in line for line in found), str(error.value)
    assert " (line " in str(error.value)


REWARD_JOB = """
name: r
model: {path: model}
data: {train: pairs.jsonl}
lengths: {max_tokens: 32}
optimizer: {lr: 1e-3}
output: run
"""


def test_a_reward_job_reads_back(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    (tmp_path / "job.yaml").write_text(REWARD_JOB)
    job = load_reward_job(tmp_path / "job.yaml")
    assert job.data.train == str(tmp_path / "pairs.jsonl")
    assert parse_reward_job(dump_reward_job(job)) == job


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("lr: 1e-3", "lr: fast", "optimizer.lr"),
        ("max_tokens: 32", "max_tokens: 33", "context of .* is 32"),
        ("train: pairs.jsonl", "trane: pairs.jsonl", "Did you mean 'train'"),
        ("pairs.jsonl", "pears.jsonl", "Did you mean 'pairs.jsonl'"),
        ("path: model", "path: modell", "there is no directory"),
        ("output: run", "output: run\nevaluation: {every: 2}", "data.heldout"),
    ],
)
def test_a_broken_reward_job_is_refused(old: str, new: str, says: str, tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    with pytest.raises(JobError, match=says):
        parse_reward_job(REWARD_JOB.replace(old, new), "job.yaml", tmp_path)
