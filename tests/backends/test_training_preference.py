"""Bradley–Terry on preference pairs: worked values, exact gradients, no effect of micro-batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForSequenceClassification

from rpeg.backends.data import load_tokenizer
from rpeg.backends.data.pairs import PairSet, TokenPair, tokenise_pairs
from rpeg.backends.reward_model import RewardModel
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.preference import compare, pair_loss, update
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import InputError
from rpeg.job import resolve_model
from rpeg.job.preferences import Preference


def make_trainer() -> Trainer:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_labels=1,
        pad_token_id=0,
        initializer_range=0.3,
    )
    model = RewardModel(LlamaForSequenceClassification(config).double()).eval()
    return Trainer(model, optimizer=OptimizerConfig(lr=1e-2, max_grad_norm=None))


def make_pairs(count: int, seed: int = 0) -> list[TokenPair]:
    rng = np.random.default_rng(seed)

    def row() -> tuple[int, ...]:
        return tuple(rng.integers(1, 32, rng.integers(2, 9)).tolist())

    return [TokenPair(row(), row(), float(rng.random())) for _ in range(count)]


def test_by_hand() -> None:
    chosen, rejected = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 3.0])
    loss = pair_loss(chosen, rejected, torch.tensor([0.0, 0.0, 1.0]), center=0.01)
    expected = [
        math.log1p(math.exp(-2)) + 0.01 * 4,
        math.log(2),
        math.log1p(math.exp(3)) + 0.01 * 16,
    ]
    assert loss.tolist() == pytest.approx(expected, rel=1e-6)


def test_scores_far_apart_stay_finite() -> None:
    far = torch.tensor([1e4], dtype=torch.float32)
    assert pair_loss(-far, far, torch.zeros(1), 0.0).item() == pytest.approx(2e4)
    assert pair_loss(far, -far, torch.zeros(1), 0.0).item() == 0.0


def test_gradients_are_those_of_finite_differences() -> None:
    chosen = torch.randn(5, dtype=torch.float64, requires_grad=True)
    rejected = torch.randn(5, dtype=torch.float64, requires_grad=True)
    margin = torch.rand(5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda c, r: pair_loss(c, r, margin, 0.1), (chosen, rejected))


@pytest.mark.parametrize("microbatch", [1, 3, 100])
def test_micro_batches_change_nothing(microbatch: int) -> None:
    whole, split = make_trainer(), make_trainer()
    for seed in range(3):
        pairs = make_pairs(7, seed)
        expected = update(whole, pairs, microbatch=7, center=0.01)
        found = update(split, list(reversed(pairs)), microbatch=microbatch, center=0.01)
        assert found == pytest.approx(expected, rel=1e-9)
    for one, other in zip(whole.parameters.local, split.parameters.local, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_pairs_are_learned() -> None:
    trainer, pairs = make_trainer(), [TokenPair(p.chosen, p.rejected) for p in make_pairs(8)]
    before = compare(trainer, pairs, microbatch=3, center=0.0)
    for _ in range(30):
        last = update(trainer, pairs, microbatch=8, center=0.0)
    after = compare(trainer, pairs, microbatch=3, center=0.0)
    assert before["accuracy"] < 1
    assert (after["accuracy"], last["applied"]) == (1.0, 1.0)
    assert after["loss"] < 0.1 < before["loss"]
    assert after["margin"] > before["margin"]


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 5))
def test_every_epoch_uses_every_pair_once(count: int, size: int, seed: int) -> None:
    pairs = PairSet(tuple(TokenPair((n,), (n, n)) for n in range(count)))
    drawn = [pair.chosen[0] for step in range(count) for pair in pairs.batch(step, size, seed)]
    assert len(drawn) == count * size
    for epoch in range(size):
        assert sorted(drawn[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_pairs_are_read_as_the_actor_writes() -> None:
    """A response ends as a sampled one does; what is too long, or no preference, is counted."""
    tokenizer = load_tokenizer(resolve_model("bundled:tiny"))
    rows = [
        Preference(0, "1+1=", "2", "3", 0.5),
        Preference(1, "1+1=", "2", "2"),
        Preference(2, "1+1=", "2" * 20, "3"),
    ]
    found = tokenise_pairs(rows, tokenizer, 10, chat_template=False)
    end = tokenizer.eos_token_id
    assert found.pairs == (TokenPair((*map(ord, "1+1=2"), end), (*map(ord, "1+1=3"), end), 0.5),)
    assert found.dropped == {"equal responses": 1, "longer than 10 tokens": 1}
    chats = [Preference(0, (("user", "a"),), "b", "c")]
    with pytest.raises(InputError, match=r"set data\.chat_template: true"):
        tokenise_pairs(chats, tokenizer, 10, chat_template=False)
    tokenizer.chat_template = "{% for m in messages %}<{{m.role}}>{{m.content}}{% endfor %}"
    (pair,) = tokenise_pairs(chats, tokenizer, 99, chat_template=True).pairs
    assert bytes(pair.chosen) == b"<user>a<assistant>b"


def test_scores_are_those_of_the_hugging_face_class() -> None:
    """Scores do not depend on where prompt and response meet."""
    trainer = make_trainer()
    pair = make_pairs(1)[0]
    one = compare(trainer, [pair], microbatch=1, center=0.0)
    with torch.no_grad():
        own = [
            float(trainer.model.hf(input_ids=torch.tensor([row])).logits[0, 0])
            for row in (pair.chosen, pair.rejected)
        ]
    assert one["margin"] == pytest.approx(own[0] - own[1], abs=1e-12)
