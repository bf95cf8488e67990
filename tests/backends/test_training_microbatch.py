"""Micro-batches: positions, padding, splits; the learning-rate schedule."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training_cases import make_samples

from rpeg.backends.training.microbatch import build, pack, split
from rpeg.backends.training.optimizer import OptimizerConfig, learning_rate

CPU = torch.device("cpu")


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 20), seed=st.integers(0, 1000), size=st.integers(1, 7))
def test_every_response_token_is_predicted_once_from_the_position_before(
    n: int, seed: int, size: int
) -> None:
    samples = make_samples(n, seed=seed)
    rows = split(samples, size)
    assert sorted(np.concatenate(rows).tolist()) == list(range(n))
    assert max(map(len, rows)) <= size
    for part in rows:
        micro = build(samples.rows(part), CPU)
        flat = micro.tokens.reshape(-1)
        assert torch.equal(flat[micro.index + 1], micro.targets)
        assert len(set(micro.index.tolist())) == len(micro.targets) == int(micro.mask.sum())
        first = micro.index[0] % micro.tokens.shape[1]
        assert int(first) == samples.prompt_lengths[part[0]] - 1


def test_split_puts_like_lengths_together_and_the_longest_first() -> None:
    samples = make_samples(12, seed=1)
    assert samples.prompt_lengths is not None
    totals = [(samples.prompt_lengths + samples.lengths)[part] for part in split(samples, 4)]
    assert all(a.min() >= b.max() for a, b in itertools.pairwise(totals))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 20), seed=st.integers(0, 1000), tokens=st.integers(1, 40))
def test_packed_samples_lie_one_behind_another_within_the_budget(n: int, seed: int, tokens: int) -> None:
    samples = make_samples(n, seed=seed)
    assert samples.prompt_lengths is not None
    sizes = samples.prompt_lengths + samples.lengths
    rows = pack(samples, tokens)
    assert sorted(np.concatenate(rows).tolist()) == list(range(n))
    for part in rows:
        assert sizes[part].sum() <= tokens or len(part) == 1
        micro = build(samples.rows(part), CPU, packed=True)
        assert micro.positions is not None
        assert micro.tokens.shape == micro.positions.shape == (1, sizes[part].sum())
        assert micro.positions[0].tolist() == [i for size in sizes[part] for i in range(size)]
        assert torch.equal(micro.tokens[0, micro.index + 1], micro.targets)
        assert bool((micro.positions[0, micro.index + 1] == micro.positions[0, micro.index] + 1).all())


def test_columns_are_padded_with_zero() -> None:
    samples = make_samples(3, seed=2)
    micro = build(samples, CPU)
    columns = micro.columns(torch.float32)
    np.testing.assert_allclose(columns["advantages"], samples.padded("advantages"), rtol=1e-6)
    assert columns["rewards"].shape == (3,)
    assert columns["returns"].dtype is torch.float32


def test_learning_rate_schedule() -> None:
    config = OptimizerConfig(lr=1.0, warmup_steps=4, schedule="linear", total_steps=14)
    assert [learning_rate(config, k) for k in (0, 3, 4, 9, 14, 99)] == [0.25, 1.0, 1.0, 0.5, 0.0, 0.0]
    cosine = OptimizerConfig(lr=1.0, schedule="cosine", total_steps=10)
    assert learning_rate(cosine, 5) == pytest.approx(0.5)
    assert learning_rate(OptimizerConfig(lr=1.0), 10**6) == 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"schedule": "step"},
        {"schedule": "linear"},
        {"lr": -1.0},
        {"betas": (0.9, 1.0)},
        {"max_grad_norm": 0.0},
    ],
)
def test_wrong_optimizer_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError):
        OptimizerConfig(**wrong)
