"""Responses of several turns: what a tool writes is read and not drawn, and no tool can hold a generation up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.llamas import random_llama
from backends.stopping import stop_after
from backends.talking import Numbers, at_once
from rpeg.backends.generation.protocol import Request, Response, Sampling, to_samples
from rpeg.backends.generation.slots import SlotEngine
from rpeg.backends.generation.tools import Toolbox
from rpeg.backends.generation.turns import MOST_CHARACTERS, Turns, calls_in
from rpeg.backends.samples import concatenate
from rpeg.backends.training.microbatch import build, split
from rpeg.errors import InputError
from rpeg.job.tools import Tools

VOCABULARY, SEED = 40, 7
STOP, CALL = 3, (4, 5, 6)
SAMPLING = Sampling(temperature=1.3, max_new_tokens=16, stop_token_ids=(STOP,))
CPU = torch.device("cpu")


def add(prompt: str, response: str) -> str:
    """The sum of the last three tokens, in the vocabulary, and a mark."""
    return f"{sum(map(int, response.split()[-3:])) % VOCABULARY} 7"


@pytest.fixture(scope="module")
def module() -> torch.nn.Module:
    return random_llama(VOCABULARY, scale=3)


def turns(
    module: torch.nn.Module,
    tool: Callable[[str, str], str | None] = add,
    slots: int = 4,
    max_calls: int = 3,
) -> Turns:
    engine = SlotEngine(module, pad_token_id=0, slots=slots, device=CPU, max_length=64)
    return Turns(engine, at_once(tool), Numbers(), frozenset(CALL), max_calls)


def make_requests() -> list[Request]:
    return [Request(i, i // 2, (8 + i // 2, 9)) for i in range(16)]


def generated(engine: Turns, sampling: Sampling = SAMPLING) -> dict[int, Response]:
    found = {r.id: r for r in engine.generate(make_requests(), sampling, seed=SEED, version=2)}
    assert sorted(found) == list(range(16))
    return found


def logprobs_of(module: torch.nn.Module, response: Response) -> np.ndarray:
    """Of all tokens of a response after its prompt, by one plain forward."""
    with torch.no_grad():
        logits = module(input_ids=torch.tensor([[*response.prompt, *response.tokens]])).logits[0]
    logprobs = (logits / SAMPLING.temperature).log_softmax(-1)[len(response.prompt) - 1 : -1]
    return logprobs.gather(1, torch.from_numpy(response.tokens)[:, None])[:, 0].numpy()


def test_a_reply_is_read_and_was_not_drawn(module: torch.nn.Module) -> None:
    engine = turns(module)
    got = generated(engine)
    assert any(calls_in(r.drawn.tolist()) > 1 for r in got.values())
    for r in got.values():
        drawn = r.drawn
        assert r.logprobs[drawn] == pytest.approx(logprobs_of(module, r)[drawn], abs=1e-10)
        assert (r.logprobs[~drawn] == 0).all()
        assert drawn[0]
        assert r.finish == "length" or (drawn[-1] and r.tokens[-1] == STOP)
        assert len(r) <= SAMPLING.max_new_tokens
        for place in np.flatnonzero(drawn[:-1] & ~drawn[1:]).tolist():
            before = r.tokens[: place + 1].tolist()
            assert before[-1] in CALL
            reply = [sum(before[-3:]) % VOCABULARY, 7]
            assert r.tokens[place + 1 : place + 3].tolist() == reply[: len(r) - place - 1]
    assert engine.take_called().calls == sum(calls_in(r.drawn.tolist()) for r in got.values())
    assert engine.called.calls == 0


def test_without_calls_the_responses_are_those_of_the_engine(module: torch.nn.Module) -> None:
    plain = SlotEngine(module, pad_token_id=0, slots=16, device=CPU, max_length=64)
    stops = Sampling(temperature=1.3, max_new_tokens=16, stop_token_ids=(STOP, *CALL))
    whole = {r.id: r.tokens.tolist() for r in plain.generate(make_requests(), stops, seed=SEED, version=2)}
    assert {i: r.tokens.tolist() for i, r in generated(turns(module, lambda *_: None)).items()} == whole
    assert {i: r.tokens.tolist() for i, r in generated(turns(module, lambda *_: "")).items()} == whole


def test_calls_beyond_the_largest_number_cut_the_response(module: torch.nn.Module) -> None:
    got = generated(turns(module, max_calls=1))
    assert max(calls_in(r.drawn.tolist()) for r in got.values()) == 1
    asked_again = [r for r in got.values() if r.drawn[-1] and r.tokens[-1] in CALL and len(r) < 16]
    assert asked_again
    assert {r.finish for r in asked_again} == {"length"}


def test_a_reply_without_room_is_cut(module: torch.nn.Module) -> None:
    got = generated(turns(module, lambda *_: "7 " * 30))
    cut = [r for r in got.values() if not r.drawn.all()]
    assert cut
    for r in cut:
        assert (len(r), r.finish, bool(r.drawn[-1])) == (16, "length", False)


def test_a_reply_of_any_text_is_cut_before_it_is_tokenised(module: torch.nn.Module) -> None:
    class Strict(Numbers):
        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            assert len(text) <= 16 * MOST_CHARACTERS
            text.encode()  # as tokenizers do; half of a surrogate pair has no bytes
            return super().encode(text, add_special_tokens=add_special_tokens)

    engine = turns(module, lambda *_: "\ud800 " + "7 " * 100_000)
    engine.codec = Strict()
    assert any(not r.drawn.all() for r in generated(engine).values())


@settings(max_examples=20, deadline=None)
@given(stretches=st.lists(st.integers(0, 7), max_size=4), slots=st.integers(1, 8), dropped=st.booleans())
def test_stopping_changes_no_response(module, stretches, slots, dropped):  # type: ignore[no-untyped-def]
    engine, got = turns(module, slots=slots), {}
    requests: Sequence[Request] = make_requests()
    for steps in stretches:
        more = stop_after(engine, steps)
        got |= {r.id: r for r in engine.generate(requests, SAMPLING, seed=SEED, version=2, more=more)}
        requests = engine.unfinished
        if dropped:
            engine.engine.drop_caches()
    got |= {r.id: r for r in engine.generate(requests, SAMPLING, seed=SEED, version=2)}
    whole = generated(turns(module, slots=16))
    assert got.keys() == whole.keys()
    for key, r in got.items():
        assert r.tokens.tolist() == whole[key].tokens.tolist()
        assert r.drawn.tolist() == whole[key].drawn.tolist()
        assert r.finish == whole[key].finish


def test_columns_are_of_drawn_tokens_and_models_read_all(module: torch.nn.Module) -> None:
    """A micro-batch of samples with replies: what is predicted is what was drawn, after all that was read."""
    got = generated(turns(module))
    samples = to_samples(got.values())
    assert samples.drawn is not None
    drawn = [got[i].drawn for i in samples.ids.tolist()]
    assert samples.lengths.tolist() == [int(d.sum()) for d in drawn]
    assert samples.response_lengths.tolist() == [len(d) for d in drawn]
    halves = concatenate([samples.take(samples.ids[8:]), samples.take(samples.ids[:8])]).take(samples.ids)
    assert halves.drawn is not None
    assert halves.drawn.tolist() == samples.drawn.tolist()
    for rows in split(samples, 5):
        own = samples.rows(rows)
        batch = build(own, CPU)
        with torch.no_grad():
            logits = module(input_ids=batch.tokens).logits.flatten(0, 1)[batch.index]
        found = (logits / SAMPLING.temperature).log_softmax(-1).gather(1, batch.targets[:, None])[:, 0]
        assert found.numpy() == pytest.approx(own.token["behaviour_logprobs"], abs=1e-10)
    for packed in (False, True):
        batch = build(samples, CPU, packed=packed)
        assert batch.tokens.flatten()[batch.index + 1].tolist() == samples.targets.tolist()


def test_samples_with_and_without_replies_go_together(module: torch.nn.Module) -> None:
    with_replies = to_samples(generated(turns(module)).values())
    without = to_samples(generated(turns(module, lambda *_: None)).values())
    assert without.drawn is None
    both = concatenate([with_replies, without])
    assert both.drawn is not None
    assert len(both.drawn) == len(both.responses) == both.response_lengths.sum()  # type: ignore[arg-type]
    assert both.drawn.sum() == both.lengths.sum()


@pytest.fixture
def toolbox(tmp_path: Path) -> Iterator[Callable[..., Toolbox]]:
    (tmp_path / "my_tools.py").write_text(
        "import time\n"
        "def calculator(prompt, response):\n    return str(eval(response))\n"
        "def raises(prompt, response):\n    raise ValueError('no')\n"
        "def hangs(prompt, response):\n    time.sleep(60)\n"
        "def dies(prompt, response):\n    import os; os._exit(3)\n"
        "def number(prompt, response):\n    return 4\n"
        "def sometimes(prompt, response):\n    time.sleep(60 if response == 'slow' else 0); return response\n"
        "def three(a, b, c):\n    return a\n"
    )
    made: list[Toolbox] = []

    def make(function: str, **options: object) -> Toolbox:
        tools = Tools(function=f"python:my_tools:{function}", import_from=str(tmp_path), **options)  # type: ignore[arg-type]
        made.append(Toolbox(tools))
        return made[-1]

    yield make
    for box in made:
        box.close()


def test_a_calculator_answers(toolbox: Callable[..., Toolbox]) -> None:
    box = toolbox("calculator", processes=2)
    replies = [box.ask("", f"{n} * 7") for n in range(6)]
    assert [r.result().text for r in replies] == [str(n * 7) for n in range(6)]
    assert all(not r.result().failure for r in replies)


@pytest.mark.parametrize(
    ("function", "text", "timed_out"),
    [
        ("raises", "[tool error: ValueError: no]", False),
        ("hangs", "[tool error: no answer within 0.3 s]", True),
        ("dies", "[tool error: the tool process ended with code 3]", False),
        ("number", "[tool error: the function gave a int, text or None is needed]", False),
    ],
)
def test_a_tool_that_fails_gives_an_error_to_read(
    function: str, text: str, timed_out: bool, toolbox: Callable[..., Toolbox]
) -> None:
    box = toolbox(function, time_limit_seconds=0.3, processes=1)
    for reply in [box.ask("", "x"), box.ask("", "x")]:  # the second finds a process that works
        assert reply.result().text == text
        assert reply.result().timed_out is timed_out
        assert reply.result().failure


def test_a_slow_call_holds_up_no_other(toolbox: Callable[..., Toolbox]) -> None:
    box = toolbox("sometimes", time_limit_seconds=20.0, processes=2)
    slow, fast = box.ask("", "slow"), box.ask("", "fast")
    assert fast.result().text == "fast"
    assert not slow.done()


def test_a_function_of_other_arguments_is_refused(toolbox: Callable[..., Toolbox]) -> None:
    with pytest.raises(
        InputError, match=r"takes \(a, b, c\), but is called with \(prompt_text, response_text\)"
    ):
        toolbox("three")


def test_a_generation_with_a_tool_that_hangs_ends(
    module: torch.nn.Module, toolbox: Callable[..., Toolbox]
) -> None:
    engine = SlotEngine(module, pad_token_id=0, slots=16, device=CPU, max_length=64)
    box = toolbox("hangs", time_limit_seconds=0.2, processes=4)
    talk = Turns(engine, box.ask, Numbers(), frozenset(CALL), max_calls=1)
    got = generated(talk)
    called = talk.take_called()
    assert called.calls == called.timed_out == sum(calls_in(r.drawn.tolist()) for r in got.values()) > 3
    assert called.failure == "no answer within 0.2 s"
