"""Engines answer for the weights that they use: after a load the canary compares them with the trainer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from backends.llamas import random_llama
from backends.stopping import stop_after
from rpeg.backends.generation.protocol import Request, Sampling, Setup
from rpeg.backends.generation.slots import SlotEngine
from rpeg.backends.weights import CANARY_TOLERANCE, canary_logprobs, canary_tokens, check_canary
from rpeg.errors import RunError

VOCABULARY, CPU = 61, torch.device("cpu")
TOKENS = canary_tokens(VOCABULARY)


def make_module(dtype: torch.dtype = torch.float64, seed: int = 0, scale: float = 4.0) -> torch.nn.Module:
    return random_llama(VOCABULARY, tied=True, scale=scale, dtype=dtype, seed=seed)


def named(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return module.named_parameters(remove_duplicate=False)


def engine_over(module: torch.nn.Module) -> SlotEngine:
    return SlotEngine.made(Setup(module, "", slots=4, max_length=48, device=CPU, version=0))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_an_engine_scores_a_prompt_as_the_trainer_does(dtype: torch.dtype, tolerance: float) -> None:
    module = make_module(dtype)
    assert engine_over(module).score(TOKENS) == pytest.approx(canary_logprobs(module, TOKENS), abs=tolerance)


def test_loaded_weights_are_used() -> None:
    trainer, own = make_module(seed=1), make_module(seed=2)
    engine = engine_over(own)
    places = {name: tensor.data_ptr() for name, tensor in named(own)}
    with pytest.raises(RunError, match="the engine does not use what it received"):
        check_canary(canary_logprobs(trainer, TOKENS), engine.score(TOKENS), torch.float64)
    engine.load_weights(named(trainer), 1)
    assert check_canary(canary_logprobs(trainer, TOKENS), engine.score(TOKENS), torch.float64) < 1e-12
    assert places == {name: tensor.data_ptr() for name, tensor in named(own)}


def test_a_stale_tied_head_is_caught() -> None:
    """An engine that keeps the head apart, and a sender that names a tied parameter once."""
    trainer, own = make_module(seed=1), make_module(seed=2)
    own.lm_head.weight = torch.nn.Parameter(own.lm_head.weight.detach().clone())  # type: ignore[union-attr, operator]
    engine = engine_over(own)
    engine.load_weights(trainer.named_parameters(), 1)
    with pytest.raises(RunError, match=r"trainer and engine differ by .* a token"):
        check_canary(canary_logprobs(trainer, TOKENS), engine.score(TOKENS), torch.bfloat16)
    engine.load_weights(named(trainer), 1)
    check_canary(canary_logprobs(trainer, TOKENS), engine.score(TOKENS), torch.float64)


def test_in_bfloat16_a_healthy_engine_passes_and_a_lost_update_does_not() -> None:
    """The threshold lies between what was seen of healthy engines, 0.02, and of one without its weights, 0.2."""
    assert 0.02 < CANARY_TOLERANCE[torch.bfloat16] < 0.2
    exact = make_module(torch.float32)
    coarse = make_module(torch.bfloat16)
    assert (
        check_canary(canary_logprobs(exact, TOKENS), engine_over(coarse).score(TOKENS), torch.bfloat16) > 1e-4
    )
    with torch.no_grad():
        for parameter in exact.parameters():
            parameter.mul_(1.1)
    with pytest.raises(RunError, match="differ by"):
        check_canary(canary_logprobs(exact, TOKENS), engine_over(coarse).score(TOKENS), torch.bfloat16)


def test_scoring_leaves_a_stopped_generation_its_keys_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    module = make_module()
    requests = [Request(i, i, (5 + i, 7)) for i in range(4)]
    sampling = Sampling(max_new_tokens=20)
    whole = {
        r.id: r.tokens.tolist() for r in engine_over(module).generate(requests, sampling, seed=3, version=0)
    }
    engine = engine_over(module)
    list(engine.generate(requests, sampling, seed=3, version=0, more=stop_after(engine, 4)))
    left = engine.unfinished
    engine.score(TOKENS)
    monkeypatch.setattr(engine._forward, "prefill", None)  # nothing is computed anew
    got = {r.id: r.tokens.tolist() for r in engine.generate(left, sampling, seed=3, version=0)}
    assert got == whole


def test_an_update_is_seen_by_the_next_responses() -> None:
    """With an absurdly large one: what is generated after it differs, and says its version."""
    module = make_module()
    engine = engine_over(module)
    requests = [Request(i, i, (5 + i, 7)) for i in range(4)]
    sampling = Sampling(max_new_tokens=10)
    before = list(engine.generate(requests, sampling, seed=3, version=0))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter))
    engine.drop_caches()
    engine.load_weights(named(module), 1)
    after = list(engine.generate(requests, sampling, seed=3, version=1))
    assert {tuple(r.tokens) for r in before} != {tuple(r.tokens) for r in after}
    assert {int(v) for r in after for v in r.versions} == {1}
    assert np.isfinite([r.logprobs.sum() for r in after]).all()
