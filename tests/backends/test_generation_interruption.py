"""A generation that is stopped and goes on: the responses of one that nobody stopped, and honest versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.llamas import random_llama
from backends.stopping import stop_after
from rpeg.backends.generation.protocol import Begun, Request, Response, Sampling, to_samples
from rpeg.backends.generation.slots import SlotEngine
from rpeg.errors import InputError

VOCABULARY, SEED = 40, 7
SAMPLING = Sampling(temperature=1.3, max_new_tokens=12, stop_token_ids=(3, 4))


def make_module() -> torch.nn.Module:
    return random_llama(VOCABULARY, heads=4)  # far from uniform, so that a wrong cache shows


def make_engine(module: torch.nn.Module, slots: int = 5) -> SlotEngine:
    return SlotEngine(module, pad_token_id=0, slots=slots, device=torch.device("cpu"), max_length=64)


def make_requests(prompts: int = 5, samples: int = 3) -> list[Request]:
    rng = np.random.default_rng(1)
    texts = [tuple(rng.integers(0, VOCABULARY, size=rng.integers(1, 9)).tolist()) for _ in range(prompts)]
    return [Request(p * samples + k, p, text) for p, text in enumerate(texts) for k in range(samples)]


def in_stretches(
    engine: SlotEngine,
    stretches: Sequence[int],
    between: Callable[[int], None],
    sampling: Sampling = SAMPLING,
) -> Iterator[Response]:
    """All responses where the generation is stopped after so many steps each time; its last stretch runs to the end."""
    requests: Sequence[Request] = make_requests()
    for version, steps in enumerate(stretches):
        yield from engine.generate(
            requests, sampling, seed=SEED, version=version, more=stop_after(engine, steps)
        )
        requests = engine.unfinished
        between(version)
    yield from engine.generate(requests, sampling, seed=SEED, version=len(stretches))


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    return make_module()


@pytest.fixture(scope="module")
def whole(module: torch.nn.Module) -> dict[int, Response]:
    engine = make_engine(module, slots=64)
    return {r.id: r for r in engine.generate(make_requests(), SAMPLING, seed=SEED, version=0)}


STRETCHES = st.lists(st.integers(0, 9), max_size=5)


@settings(max_examples=25, deadline=None)
@given(stretches=STRETCHES, slots=st.integers(1, 16), how=st.sampled_from(["keep_kv", "reprefill"]))
def test_stopping_without_new_weights_changes_no_response(module, whole, stretches, slots, how):  # type: ignore[no-untyped-def]
    engine = make_engine(module, slots)
    between = (lambda _: engine.drop_caches()) if how == "reprefill" else (lambda _: None)
    got = {r.id: r for r in in_stretches(engine, stretches, between)}
    assert got.keys() == whole.keys()
    for key, response in got.items():
        assert response.tokens.tolist() == whole[key].tokens.tolist()
        assert response.logprobs == pytest.approx(whole[key].logprobs, abs=1e-12)
        assert response.finish == whole[key].finish


@settings(max_examples=25, deadline=None)
@given(stretches=STRETCHES, slots=st.integers(1, 16), dropped=st.booleans())
def test_columns_of_one_length_a_finish_reason_and_versions_in_order(module, stretches, slots, dropped):  # type: ignore[no-untyped-def]
    """Whatever the order of stops, with weights that change at each."""
    engine = make_engine(make_module(), slots)

    def between(version: int) -> None:
        with torch.no_grad():
            engine.module.lm_head.weight.mul_(1.1)  # type: ignore[union-attr, operator]
        if dropped:
            engine.drop_caches()

    responses = list(in_stretches(engine, stretches, between))
    assert sorted(r.id for r in responses) == [r.id for r in make_requests()]
    for r in responses:
        assert len(r.tokens) == len(r.logprobs) == len(r.versions) == len(r.drawn) > 0
        assert r.finish in ("stop", "length")
        assert (np.diff(r.versions) >= 0).all()
        assert r.versions.max() <= len(stretches)
        assert r.drawn.all()
    assert len(to_samples(responses)) == len(responses)


def test_each_token_has_the_version_it_was_drawn_with():
    """After a stop, log-probabilities of later tokens are those of the new weights over all that came before."""
    module = make_module()
    engine = make_engine(module, slots=16)

    def change(_: int) -> None:
        with torch.no_grad():
            module.lm_head.weight.mul_(-1.0)
        engine.drop_caches()

    responses = list(in_stretches(engine, [3], change))
    assert any(set(r.versions.tolist()) == {0, 1} for r in responses)
    for r in responses:
        with torch.no_grad():
            logits = module(input_ids=torch.tensor([[*r.prompt, *r.tokens]])).logits[0]
        logits = logits[len(r.prompt) - 1 : -1]
        signs = torch.from_numpy(np.where(r.versions == 1, 1.0, -1.0))[:, None]
        logprobs = (logits * signs / SAMPLING.temperature).log_softmax(-1)
        expected = logprobs.gather(1, torch.from_numpy(r.tokens)[:, None])[:, 0]
        assert r.logprobs == pytest.approx(expected.numpy(), abs=1e-10)


def test_kept_keys_and_values_are_used_and_dropped_ones_computed_anew(monkeypatch):
    def passes(drop: bool) -> int:
        engine = make_engine(make_module(), slots=16)
        list(engine.generate(make_requests(), SAMPLING, seed=SEED, version=0, more=stop_after(engine, 3)))
        if drop:
            engine.drop_caches()
        computed: list[int] = []
        prefill = engine._forward.prefill
        monkeypatch.setattr(
            engine._forward, "prefill", lambda t, *rest: computed.append(len(t)) or prefill(t, *rest)
        )
        left = engine.unfinished
        assert len(list(engine.generate(left, SAMPLING, seed=SEED, version=1))) == len(left) > 5
        return sum(computed)

    assert passes(drop=False) == 0
    assert passes(drop=True) > 5


def test_without_interruption_every_response_has_one_version(whole):
    assert {len(set(r.versions.tolist())) for r in whole.values()} == {1}


def test_another_engine_goes_on_with_what_one_has_left(module, whole):
    first, second = make_engine(module), make_engine(module, slots=2)
    got = list(first.generate(make_requests(), SAMPLING, seed=SEED, version=0, more=stop_after(first, 4)))
    assert first.unfinished
    got += second.generate(first.unfinished, SAMPLING, seed=SEED, version=0)
    assert {r.id: r.tokens.tolist() for r in got} == {i: r.tokens.tolist() for i, r in whole.items()}


def test_only_some_of_what_is_left_may_go_on(module, whole):
    engine = make_engine(module, slots=16)
    list(engine.generate(make_requests(), SAMPLING, seed=SEED, version=0, more=stop_after(engine, 2)))
    some = engine.unfinished[1::3]
    got = {r.id: r.tokens.tolist() for r in engine.generate(some, SAMPLING, seed=SEED, version=0)}
    assert got == {r.id: whole[r.id].tokens.tolist() for r in some}


def test_requests_that_come_later_are_served_too(module, whole):
    engine = make_engine(module, slots=4)
    later = [make_requests()[5:9], make_requests()[9:]]
    got = engine.generate(
        make_requests()[:5], SAMPLING, seed=SEED, version=0, more=lambda: later.pop() if later else ()
    )
    assert {r.id: r.tokens.tolist() for r in got} == {i: r.tokens.tolist() for i, r in whole.items()}


def test_a_stop_without_a_generation_does_nothing(module, whole):
    engine = make_engine(module)
    engine.stop()
    assert len(list(engine.generate(make_requests(), SAMPLING, seed=SEED, version=0))) == len(whole)
    assert engine.unfinished == ()


def test_a_finished_response_cannot_begin_again(module):
    begun = Begun((1,) * 12, (0.0,) * 12, (0,) * 12, (True,) * 12)
    with pytest.raises(InputError, match=r"request 0 has begun with 12 tokens.*at most 12"):
        make_engine(module).generate([Request(0, 0, (1,), begun)], SAMPLING, seed=0, version=0)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"1 tokens have .* lengths \[1, 0, 1\]"):
        Begun((1,), (0.0,), (), (True,))
