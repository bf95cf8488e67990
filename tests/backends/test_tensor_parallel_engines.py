"""Engines and reward models over two tensor-parallel ranks: the samples and scores of one, with half the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from training_cases import VOCABULARY, make_samples, tiny_model
from transformers import LlamaConfig, LlamaForSequenceClassification

from rpeg.backends.generation.protocol import Request, Sampling
from rpeg.backends.generation.slots import SlotEngine
from rpeg.backends.reward_model import RewardModel
from rpeg.backends.training.grid import Grid, Groups, make_grid
from rpeg.backends.training.trainer import ALONE, Trainer
from rpeg.backends.weights import canary_tokens
from rpeg.plan import Parallelism

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SAMPLINGS = (
    Sampling(temperature=1.3, max_new_tokens=9, stop_token_ids=(3, 4)),
    Sampling(top_p=0.8, top_k=7, max_new_tokens=6),
    Sampling(greedy=True, max_new_tokens=6),
)
LAYOUTS = (Parallelism(tp=2), Parallelism(tp=2, sequence_parallel=True))


def found(grid: Grid) -> dict[str, Any]:
    """What an engine over a trainer's module gives, and that trainer before and after."""
    trainer = Trainer(tiny_model(("lm",)), grid=grid)
    device = torch.device("cpu")
    engine = SlotEngine(trainer.model.hf, pad_token_id=0, slots=3, device=device, max_length=48)
    rng = np.random.default_rng(1)
    prompts = [tuple(rng.integers(0, VOCABULARY, size=n).tolist()) for n in (1, 7, 4)]
    asked = [Request(2 * p + k, p, text) for p, text in enumerate(prompts) for k in range(2)]
    samples = make_samples(5, seed=2)
    out: dict[str, Any] = {
        "logprobs": [trainer.logprobs(samples, temperature=1.0, microbatch=2).tolist() for _ in range(1)]
    }
    out["responses"] = [
        sorted(
            (r.id, r.tokens.tolist(), r.logprobs.tolist())
            for r in engine.generate(asked, sampling, seed=5, version=1)
        )
        for sampling in SAMPLINGS
    ]
    out["cache_bytes"] = engine.cache_bytes
    out["score"] = engine.score(canary_tokens(VOCABULARY)).tolist()
    out["logprobs"].append(trainer.logprobs(samples, temperature=1.0, microbatch=2).tolist())
    rewards = Trainer(reward_model(), grid=grid)
    out["rewards"] = rewards.scores(samples, microbatch=2).tolist()
    out["reward_bytes"] = rewards.parameter_bytes()
    return out


def reward_model() -> RewardModel:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
        num_labels=1,
        pad_token_id=0,
    )
    return RewardModel(LlamaForSequenceClassification(config).double().eval())


def _worker(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank, world_size=2)
    made: Groups = {}
    for number, layout in enumerate(LAYOUTS):
        grid = make_grid(layout, range(2), made)
        assert grid is not None
        (Path(directory) / f"{number}-{rank}.json").write_text(json.dumps(found(grid)))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """By layout, by rank."""
    directory = tmp_path_factory.mktemp("engines")
    mp.spawn(_worker, args=(str(directory),), nprocs=2)
    return [
        [json.loads((directory / f"{number}-{rank}.json").read_text()) for rank in range(2)]
        for number in range(len(LAYOUTS))
    ]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return found(ALONE)


@pytest.mark.parametrize("number", range(len(LAYOUTS)), ids=[str(layout) for layout in LAYOUTS])
def test_two_ranks_draw_the_samples_of_one(number: int, ranks: Any, alone: dict[str, Any]) -> None:
    for rank in ranks[number]:
        for mine, theirs in zip(rank["responses"], alone["responses"], strict=True):
            assert [(i, tokens) for i, tokens, _ in mine] == [(i, tokens) for i, tokens, _ in theirs]
            for (_, _, got), (_, _, expected) in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(rank["score"], alone["score"], rtol=0, atol=1e-9)
    assert ranks[number][0]["responses"] == ranks[number][1]["responses"]  # bit by bit: no rank may go astray


@pytest.mark.parametrize("number", range(len(LAYOUTS)), ids=[str(layout) for layout in LAYOUTS])
def test_generating_leaves_the_trainer_as_it_was(number: int, ranks: Any, alone: dict[str, Any]) -> None:
    for rank in ranks[number]:
        before, after = rank["logprobs"]
        assert before == after
        np.testing.assert_allclose(before, alone["logprobs"][0], rtol=0, atol=1e-9)


def test_a_rank_holds_its_heads_of_the_cache(ranks: Any, alone: dict[str, Any]) -> None:
    assert [rank["cache_bytes"] for rank in ranks[0]] == [alone["cache_bytes"] / 2] * 2


def test_reward_models_score_alike_and_each_rank_holds_a_part(ranks: Any, alone: dict[str, Any]) -> None:
    for rank in (rank for layout in ranks for rank in layout):
        np.testing.assert_allclose(rank["rewards"], alone["rewards"], rtol=0, atol=1e-9)
        assert rank["reward_bytes"] < 0.55 * alone["reward_bytes"]
