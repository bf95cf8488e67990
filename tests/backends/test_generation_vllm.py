"""vLLM behind the protocol, where it is installed: one engine in this process, over a tiny Llama with a tied head."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from backends.llamas import random_llama
from backends.stopping import stop_after
from backends.talking import Numbers, at_once
from rpeg.backends.generation import backend
from rpeg.backends.generation.protocol import Request, Response, Sampling, Setup
from rpeg.backends.generation.slots import SlotEngine
from rpeg.backends.generation.turns import Turns
from rpeg.backends.weights import canary_logprobs, canary_tokens, check_canary
from rpeg.errors import InputError, RunError

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = pytest.mark.slow

VOCABULARY, CPU = 128, torch.device("cpu")
GREEDY = Sampling(greedy=True, max_new_tokens=12, stop_token_ids=(3, 4))
TEMPERED = Sampling(temperature=1.3, max_new_tokens=12, stop_token_ids=(3, 4))


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> torch.nn.Module:
    module = random_llama(VOCABULARY, hidden=64, tied=True, scale=3, dtype=torch.float32)
    module.save_pretrained(tmp_path_factory.mktemp("model"))
    return module


@pytest.fixture(scope="module")
def made(module: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> object:
    directory = tmp_path_factory.mktemp("vllm")
    module.save_pretrained(directory)  # type: ignore[operator]
    return backend("vllm").made(Setup(module, str(directory), 8, 64, CPU, version=0))


@pytest.fixture
def engine(made, module):  # type: ignore[no-untyped-def]
    """With the module's weights of version 0, and nothing cached."""
    made.load_weights(named(module), 0)
    made.drop_caches()
    return made


def named(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return module.named_parameters(remove_duplicate=False)


def make_requests(prompts: int = 4, samples: int = 2) -> list[Request]:
    rng = np.random.default_rng(1)
    texts = [tuple(rng.integers(5, VOCABULARY, size=rng.integers(1, 9)).tolist()) for _ in range(prompts)]
    return [Request(p * samples + k, p, text) for p, text in enumerate(texts) for k in range(samples)]


def generated(engine, sampling: Sampling, **options) -> dict[int, Response]:  # type: ignore[no-untyped-def]
    found = engine.generate(make_requests(), sampling, seed=7, version=engine.version, **options)
    return {response.id: response for response in found}


def recomputed(module: torch.nn.Module, response: Response, temperature: float = 1.0) -> np.ndarray:
    with torch.no_grad():
        logits = module(input_ids=torch.tensor([[*response.prompt, *response.tokens]])).logits[0]
    logprobs = (logits.double() / temperature).log_softmax(-1)[len(response.prompt) - 1 : -1]
    return logprobs.gather(1, torch.from_numpy(response.tokens)[:, None])[:, 0].numpy()


def test_greedy_tokens_and_logprobs_are_those_of_the_slot_engine(engine, module):
    slots = SlotEngine(module, pad_token_id=0, slots=8, device=CPU, max_length=64)
    expected = {r.id: r for r in slots.generate(make_requests(), GREEDY, seed=7, version=0)}
    for key, response in generated(engine, GREEDY).items():
        assert response.tokens.tolist() == expected[key].tokens.tolist()
        assert response.logprobs == pytest.approx(expected[key].logprobs, abs=1e-4)
        assert response.finish == expected[key].finish


def test_logprobs_are_tempered_and_of_the_drawn_token(engine, module):
    got = generated(engine, TEMPERED)
    assert {r.finish for r in got.values()} <= {"stop", "length"}
    assert len({tuple(r.tokens) for r in got.values()}) > 4
    for response in got.values():
        assert response.logprobs == pytest.approx(recomputed(module, response, 1.3), abs=1e-4)
        assert response.versions.tolist() == [0] * len(response)
    again = generated(engine, TEMPERED)
    assert {i: r.tokens.tolist() for i, r in again.items()} == {i: r.tokens.tolist() for i, r in got.items()}


def test_new_weights_are_used_in_place_and_their_version_is_reported(engine, module):
    tokens = canary_tokens(VOCABULARY)
    before = engine.score(tokens)
    check_canary(canary_logprobs(module, tokens), before, torch.float32)
    kept = {name: tensor.detach().clone() for name, tensor in named(module)}
    try:
        with torch.no_grad():
            for _, tensor in module.named_parameters():
                tensor.add_(0.05 * torch.randn_like(tensor))
        engine.load_weights(named(module), 1)
        engine.drop_caches()
        assert engine.version == 1
        after = engine.score(tokens)
        assert np.abs(after - before).max() > 0.01
        check_canary(canary_logprobs(module, tokens), after, torch.float32)
        for response in generated(engine, TEMPERED).values():
            assert response.logprobs == pytest.approx(recomputed(module, response, 1.3), abs=1e-4)
            assert set(response.versions.tolist()) == {1}
    finally:
        module.load_state_dict(kept)


def test_the_canary_catches_a_tied_head_that_was_not_sent(engine, module):
    changed = {n: t.detach() + 0.05 * torch.randn_like(t) for n, t in named(module)}
    changed["lm_head.weight"] = changed["model.embed_tokens.weight"]
    truth = AutoModelForCausalLM.from_config(module.config)
    truth.load_state_dict(changed)
    tokens = canary_tokens(VOCABULARY)
    engine.load_weights(((n, t) for n, t in changed.items() if n != "lm_head.weight"), 1)
    with pytest.raises(RunError, match="the engine does not use what it received"):
        check_canary(canary_logprobs(truth.eval(), tokens), engine.score(tokens), torch.float32)
    engine.load_weights(changed.items(), 2)
    check_canary(canary_logprobs(truth.eval(), tokens), engine.score(tokens), torch.float32)


@pytest.mark.parametrize("how", ["keep_kv", "reprefill"])
def test_a_stopped_generation_goes_on(engine, how):
    whole = generated(engine, GREEDY)
    got = generated(engine, GREEDY, more=stop_after(engine, 3))
    left = engine.unfinished
    assert left
    if how == "reprefill":
        engine.drop_caches()
    got |= {r.id: r for r in engine.generate(left, GREEDY, seed=7, version=0)}
    assert {i: r.tokens.tolist() for i, r in got.items()} == {i: r.tokens.tolist() for i, r in whole.items()}
    for key, response in got.items():
        assert response.logprobs == pytest.approx(whole[key].logprobs, abs=1e-4)


def test_each_token_has_the_version_it_was_drawn_with(engine, module):
    done = generated(engine, TEMPERED, more=stop_after(engine, 3))
    left = engine.unfinished
    engine.load_weights(named(module), 1)
    engine.drop_caches()
    done |= {r.id: r for r in engine.generate(left, TEMPERED, seed=7, version=1)}
    assert sorted(done) == [r.id for r in make_requests()]
    assert any(set(r.versions.tolist()) == {0, 1} for r in done.values())
    for r in done.values():
        assert (np.diff(r.versions) >= 0).all()
        assert r.logprobs == pytest.approx(recomputed(module, r, 1.3), abs=1e-4)


def test_requests_that_come_later_are_served_too(engine):
    later = [make_requests()[3:]]
    found = engine.generate(
        make_requests()[:3], TEMPERED, seed=7, version=0, more=lambda: later.pop() if later else ()
    )
    got = {r.id: r.tokens.tolist() for r in found}
    assert got == {i: r.tokens.tolist() for i, r in generated(engine, TEMPERED).items()}


def test_a_tool_is_read_as_by_the_slot_engine(engine, module):
    slots = SlotEngine(module, pad_token_id=0, slots=8, device=CPU, max_length=64)
    calls = frozenset(range(5, 60))
    got = []
    for one in (slots, engine):
        talk = Turns(
            one, at_once(lambda _, said: f"{sum(map(int, said.split())) % 100} 7"), Numbers(), calls, 3
        )
        found = talk.generate(make_requests(), GREEDY, seed=7, version=0)
        got.append({r.id: (r.tokens.tolist(), r.drawn.tolist(), r.finish) for r in found})
    assert got[0] == got[1]
    assert any(False in drawn for _, drawn, _ in got[1].values())


def test_an_engine_that_slept_generates_nothing_before_weights_come(engine, module):
    engine.sleep()
    with pytest.raises(RunError, match="slept and has no weights"):
        generated(engine, GREEDY)
    engine.load_weights(named(module), 0)
    assert len(generated(engine, GREEDY)) == len(make_requests())


def test_another_version_than_asked_is_refused(engine):
    with pytest.raises(RunError, match="version 3 is asked of an engine that has 0"):
        engine.generate(make_requests(), GREEDY, seed=7, version=3)


def test_logprobs_that_would_be_of_another_distribution_are_refused(engine):
    truncated = Sampling(temperature=1.3, top_p=0.9, max_new_tokens=12)
    with pytest.raises(
        InputError, match=r"would not be those of temperature 1\.3 with top_p 0\.9 and top_k 0"
    ):
        engine.generate(make_requests(), truncated, seed=7, version=0)


def test_weights_cannot_change_under_a_generation(engine, module):
    responses = engine.generate(make_requests(), TEMPERED, seed=7, version=0)
    next(responses)
    with pytest.raises(RunError, match="requests are active"):
        engine.load_weights(named(module), 1)
    responses.close()
    engine.load_weights(named(module), 1)
