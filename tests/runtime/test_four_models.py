"""PPO of four models on real processes: a reward model beside a verifier, evaluated at a temperature, samples kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from rpeg.plan import Parallelism
from rpeg.trace import read_kept
from rpeg.verify import prove_run
from runtime.runs import Silent, make_job, plan_for, run, tiny_model


def reward_model(directory: Path, vocabulary: int) -> Path:
    """A random classifier without a tokenizer: it reads as the actor does."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        num_labels=1,
        pad_token_id=256,
        initializer_range=0.2,
    )
    LlamaForSequenceClassification(config).save_pretrained(directory)
    return directory


@pytest.mark.parametrize(
    "where",
    [{"blocks": {"reward_model": (1,)}}, {"layouts": {"reward_model": Parallelism(tp=2)}}],
    ids=["on a device of its own", "cut over both devices"],
)
def test_four_models_train_and_say_what_they_did(where: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    classifier = reward_model(tmp_path / "classifier", 259)
    job = make_job(
        model,
        tmp_path / "run",
        models={"actor": {"path": str(model)}, "reward": {"path": str(classifier)}},
        reward=[
            {"name": "model", "weight": 1.0, "truncated": "mask"},
            {"name": "format", "weight": 0.5, "pattern": "[^0-9]*", "truncated": "mask"},
        ],
        evaluation={
            "every": 1,
            "prompts": 4,
            "samples": 2,
            "temperature": 1.0,
            "reward": {"name": "numeric"},
        },
        samples={"every": 1, "count": 3},
    )
    view = Silent([])
    ran = run(job, plan_for(job, **where), view=view)
    assert prove_run(ran.traces).findings == ()
    assert set(ran.weights) == {"actor", "critic"}, "the reward model is frozen"
    for record in ran.outcome.records:
        parts = record.metrics["reward/model"] + 0.5 * record.metrics["reward/format"]
        assert record.reward == pytest.approx(parts, abs=1e-9)
        assert record.metrics["reward/model"] != 0
        assert record.metrics["actor/masked"] == record.truncated * 16
    lines = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert all({"eval/pass@1", "eval/pass@2", "accuracy"} <= set(line) for line in lines)
    kept = read_kept(tmp_path / "run")
    assert [sample.id for sample in kept] == [0, 1, 2, 16, 17, 18]
    for sample in kept:
        assert sample.advantage is not None
        assert sample.reward == pytest.approx(sample.rewards["model"] + 0.5 * sample.rewards["format"])
        assert sample.prompt is not None
        assert " + " in sample.prompt
