"""An engine in a process of its own does what the same engine does here."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.test_generation_canary import TOKENS, make_module, named
from rpeg.backends.generation.apart import EngineApart
from rpeg.backends.generation.protocol import Begun, Request, Response, Sampling, Setup
from rpeg.backends.generation.slots import SlotEngine
from rpeg.backends.generation.wire import (
    Frame,
    of_requests,
    of_response,
    read,
    requests_of,
    response_of,
    write,
)
from rpeg.backends.weights import canary_logprobs
from rpeg.errors import InputError, RunError

CPU = torch.device("cpu")
SAMPLING = Sampling(max_new_tokens=12)
REQUESTS = [Request(i, i // 2, (3, 5 + i // 2, 7)) for i in range(6)]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    make_module().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def apart(directory: Path) -> Iterator[EngineApart]:
    setup = Setup(make_module(), str(directory), 4, 48, CPU, version=0, dtype=torch.float64)
    engine = EngineApart.made("slots", setup)
    yield engine
    engine.close()


def here(module: torch.nn.Module) -> SlotEngine:
    return SlotEngine.made(Setup(module, "", slots=4, max_length=48, device=CPU, version=0))


def told(response: Response) -> tuple[object, ...]:
    return response.id, response.tokens.tolist(), response.versions.tolist(), response.finish


def test_it_generates_scores_and_takes_weights_as_here(apart: EngineApart) -> None:
    for version, seed in enumerate((0, 1)):
        module = make_module(seed=seed)
        apart.load_weights(named(module), version)
        apart.drop_caches()
        assert apart.score(TOKENS) == pytest.approx(canary_logprobs(module, TOKENS), abs=1e-12)
        one, other = (
            sorted(engine.generate(REQUESTS, SAMPLING, seed=3, version=version), key=lambda r: r.id)
            for engine in (apart, here(module))
        )
        assert list(map(told, one)) == list(map(told, other))
        for a, b in zip(one, other, strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-12)
    assert apart.cache_bytes > 0
    apart.sleep()
    assert apart.cache_bytes == 0


def test_it_takes_more_and_stops_as_here(apart: EngineApart) -> None:
    module = make_module()
    apart.load_weights(named(module), 0)
    waiting = list(REQUESTS[3:])

    def more() -> Sequence[Request]:
        return [waiting.pop()] if waiting else ()

    whole = {r.id: told(r) for r in here(module).generate(REQUESTS, SAMPLING, seed=3, version=0)}
    responses = apart.generate(REQUESTS[:3], SAMPLING, seed=3, version=0, more=more)
    found = [next(responses)]
    apart.stop()
    found += responses
    left = apart.unfinished
    assert {r.id for r in found} | {r.id for r in left} | {r.id for r in waiting} == set(whole)
    found += apart.generate([*left, *waiting], SAMPLING, seed=3, version=0)
    assert {r.id: told(r) for r in found} == whole


def test_what_it_raises_is_raised_here(apart: EngineApart) -> None:
    with pytest.raises(InputError, match="outside the vocabulary of 61"):
        apart.generate([Request(0, 0, (99,))], SAMPLING, seed=0, version=0)
    responses = apart.generate(REQUESTS, SAMPLING, seed=0, version=0)
    with pytest.raises(RunError, match="exhaust or close its iterator"):
        apart.sleep()
    next(responses)
    responses.close()  # type: ignore[attr-defined]
    apart.sleep()
    with pytest.raises(ZeroDivisionError):
        list(apart.generate(REQUESTS, SAMPLING, seed=0, version=0, more=lambda: [1 // 0]))  # type: ignore[list-item]
    assert len(list(apart.generate(REQUESTS, SAMPLING, seed=0, version=0))) == len(REQUESTS)


def test_one_that_has_died_is_named(directory: Path) -> None:
    setup = Setup(make_module(), str(directory), 4, 48, CPU, version=0, dtype=torch.float64)
    engine = EngineApart.made("slots", setup)
    os.kill(engine._child.pid, signal.SIGKILL)
    with pytest.raises(RunError, match="the process of the engine slots has ended with code -9"):
        engine.score(TOKENS)
    engine.close()


numbers = st.lists(st.integers(0, 100), max_size=5)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    tokens = draw(numbers)
    n = len(tokens)
    begun = Begun(
        tuple(tokens),
        tuple(draw(st.lists(st.floats(-9, 0), min_size=n, max_size=n))),
        tuple(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))),
        tuple(draw(st.lists(st.booleans(), min_size=n, max_size=n))),
    )
    return Request(draw(st.integers(0, 9)), draw(st.integers(0, 9)), tuple(draw(numbers)), begun)


@settings(max_examples=50, deadline=None)
@given(st.lists(requests(), max_size=4))
def test_requests_come_as_they_went(sent: list[Request]) -> None:
    stream = BytesIO()
    write(stream, of_requests("more", sent, stop=True))
    write(stream, Frame("done"))
    stream.seek(0)
    frame = read(stream)
    assert frame is not None
    assert requests_of(frame) == sent
    assert frame.values == {"stop": True}
    assert read(stream) == Frame("done", {}, [])
    assert read(stream) is None


def test_responses_come_as_they_went() -> None:
    columns = np.array([4, 2]), np.array([-0.5, -1e-300]), np.array([0, 1]), np.array([True, False])
    stream = BytesIO()
    write(stream, of_response(Response(7, 3, (1, 2), *columns, "stop")))
    stream.seek(0)
    frame = read(stream)
    assert frame is not None
    got = response_of(frame)
    assert (got.id, got.group, got.prompt, got.finish) == (7, 3, (1, 2), "stop")
    for one, other in zip((got.tokens, got.logprobs, got.versions, got.drawn), columns, strict=True):
        assert one.tolist() == other.tolist()
