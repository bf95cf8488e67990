"""Reward models score as their own Hugging Face class does, whatever the padding and the micro-batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from training_cases import VOCABULARY, make_samples
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
)

from rpeg.backends.models import PolicyModel
from rpeg.backends.reward_model import load_reward_model
from rpeg.backends.samples import Samples
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import InputError

SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "initializer_range": 0.3,
}


def rows(samples: Samples) -> list[torch.Tensor]:
    """Each sample's tokens, prompt and response."""
    out, p, r = [], 0, 0
    for prompt, response in zip(samples.prompt_lengths.tolist(), samples.lengths.tolist(), strict=True):
        both = np.concatenate([samples.prompts[p : p + prompt], samples.responses[r : r + response]])
        out.append(torch.from_numpy(both))
        p, r = p + prompt, r + response
    return out


def classifier(directory: Path, kind: str, pad: int | None, labels: int = 1) -> Path:
    torch.manual_seed(1)
    if kind == "llama":
        model = LlamaForSequenceClassification(LlamaConfig(**SHAPE, num_labels=labels, pad_token_id=pad))
    else:
        model = BertForSequenceClassification(BertConfig(**SHAPE, num_labels=labels, pad_token_id=pad))
    model.double().eval().save_pretrained(directory)
    return directory


@pytest.mark.parametrize(("kind", "pad"), [("llama", 0), ("llama", None), ("bert", 0)])
@pytest.mark.parametrize("microbatch", [1, 4, 100])
def test_a_classifier_scores_as_its_own_class(
    kind: str, pad: int | None, microbatch: int, tmp_path: Path
) -> None:
    directory = classifier(tmp_path / "model", kind, pad)
    samples = make_samples(9, seed=4)
    own = AutoModelForSequenceClassification.from_pretrained(directory, dtype=torch.float64).eval()
    with torch.no_grad():
        expected = [float(own(input_ids=row[None]).logits[0, 0]) for row in rows(samples)]
    model = load_reward_model(str(directory), dtype=torch.float64)
    found = Trainer(model).scores(samples, microbatch=microbatch)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert len({round(score, 6) for score in expected}) > 5, "scores that differ"


def test_a_value_head_is_read_at_the_last_token(tmp_path: Path) -> None:
    torch.manual_seed(2)
    policy = PolicyModel(LlamaForCausalLM(LlamaConfig(**SHAPE)).double(), ("lm", "value"), seed=5).eval()
    policy.save(str(tmp_path / "model"))
    samples = make_samples(6, seed=1)
    with torch.no_grad():
        expected = [
            float(policy.value_head(policy.backbone(input_ids=row[None]).last_hidden_state[0, -1]))
            for row in rows(samples)
        ]
    model = load_reward_model(str(tmp_path / "model"), dtype=torch.float64)
    found = Trainer(model).scores(samples, microbatch=4)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_what_is_no_reward_model_is_refused(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(tmp_path / "lm")
    with pytest.raises(InputError, match=r"is LlamaForCausalLM.*train-reward"):
        load_reward_model(str(tmp_path / "lm"), dtype=torch.float32)
    with pytest.raises(InputError, match="has 3 labels"):
        load_reward_model(str(classifier(tmp_path / "three", "llama", 0, labels=3)), dtype=torch.float32)
    with pytest.raises(InputError, match="cannot load a reward model"):
        load_reward_model(str(tmp_path / "nothing"), dtype=torch.float32)


def test_a_new_head_is_drawn_from_the_seed(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(tmp_path / "lm")
    heads = [
        load_reward_model(str(tmp_path / "lm"), dtype=torch.float32, begin=seed).hf.score.weight
        for seed in (7, 7, 8)
    ]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_no_samples_give_no_scores(tmp_path: Path) -> None:
    model = load_reward_model(str(classifier(tmp_path / "m", "llama", 0)), dtype=torch.float64)
    assert Trainer(model).scores(make_samples(2).rows([]), microbatch=4).shape == (0,)
