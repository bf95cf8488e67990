"""`Turns`: responses of several turns over any engine, with a tool between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Protocol

from rpeg.backends.generation.protocol import (
    Begun,
    Generates,
    More,
    Request,
    Response,
    Sampling,
    nothing_more,
)
from rpeg.backends.generation.tools import Reply

MOST_CHARACTERS = 256
"""Of a token."""


class Codec(Protocol):
    """Text of tokens and back, such as a tokenizer of transformers."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


@dataclass
class Called:
    """What became of calls. tokens: that tools wrote. failure: of the first call that failed."""

    calls: int = 0
    failed: int = 0
    timed_out: int = 0
    tokens: int = 0
    seconds: float = 0.0
    failure: str = ""


@dataclass
class Turns:
    """An engine whose responses may call a tool.

    ask: the tool, given the texts of prompt and response so far. ends: the tokens that end a turn with a call.
    max_calls: in a response. While a call runs, the engine works on other responses; what the tool writes is read by the
    model and was not drawn from it. A response is finished where it stops without a call, the tool gives None or
    nothing, or the largest length is reached; one that asks once too often is cut.
    called: counts since it was last taken.
    """

    engine: Generates
    ask: Callable[[str, str], Future[Reply]]
    codec: Codec
    ends: frozenset[int]
    max_calls: int
    called: Called = field(default_factory=Called)
    _unfinished: tuple[Request, ...] = ()

    def stop(self) -> None:
        """As `Generates.stop`; calls that run are waited for."""
        self.engine.stop()

    @property
    def unfinished(self) -> tuple[Request, ...]:
        """As `Generates.unfinished`."""
        return self._unfinished

    def take_called(self) -> Called:
        """The counts, which begin anew."""
        called, self.called = self.called, Called()
        return called

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        seed: int,
        version: int,
        more: More = nothing_more,
    ) -> Iterator[Response]:
        """As `Generates.generate`; `sampling.max_new_tokens` holds for a whole response with all its turns."""
        pending: dict[Future[Reply], Response] = {}
        finished: list[Response] = []
        working = len(requests)

        def replied(seconds: float | None) -> list[Request]:
            """Of the calls that have ended within so many seconds (None: at least one), the responses that go on."""
            done, _ = wait(pending, timeout=seconds, return_when=FIRST_COMPLETED)
            found = [self._after(pending.pop(call), call.result(), sampling, version) for call in done]
            finished.extend(one for one in found if isinstance(one, Response))
            return [one for one in found if isinstance(one, Request)]

        def further() -> Sequence[Request]:
            nonlocal working
            taken = [*more(), *(replied(0) if pending else ())]
            while pending and not (working or taken):
                taken += replied(None)
            working += len(taken)
            return taken

        stops = tuple(dict.fromkeys((*sampling.stop_token_ids, *sorted(self.ends))))
        responses = self.engine.generate(
            requests, replace(sampling, stop_token_ids=stops), seed=seed, version=version, more=further
        )
        for response in responses:
            working -= 1
            if self._calls(response):
                pending[self.ask(*self._texts(response))] = response
            else:
                finished.append(self._ended(response, sampling))
            yield from _emptied(finished)
        left = list(self.engine.unfinished)
        while pending:
            left += replied(None)
        self._unfinished = tuple(left)
        yield from _emptied(finished)

    def _calls(self, response: Response) -> bool:
        asks = response.finish == "stop" and int(response.tokens[-1]) in self.ends
        return asks and calls_in(response.drawn.tolist()) < self.max_calls

    def _ended(self, response: Response, sampling: Sampling) -> Response:
        """One that ends with a call which is not made is cut."""
        by_itself = int(response.tokens[-1]) in sampling.stop_token_ids
        return response if by_itself or response.finish == "length" else replace(response, finish="length")

    def _texts(self, response: Response) -> tuple[str, str]:
        prompt, written = (
            self.codec.decode(tokens, skip_special_tokens=True)
            for tokens in (list(response.prompt), response.tokens.tolist())
        )
        return prompt, written

    def _after(
        self, response: Response, reply: Reply, sampling: Sampling, version: int
    ) -> Request | Response:
        """The response with the reply: to go on with, or finished."""
        called = self.called
        called.calls += 1
        called.failed += bool(reply.failure) and not reply.timed_out
        called.timed_out += reply.timed_out
        called.seconds += reply.seconds
        called.failure = called.failure or reply.failure
        room = sampling.max_new_tokens - len(response)
        # No token is of more characters than that many, and tokenizers refuse half of a surrogate pair.
        text = reply.text[: room * MOST_CHARACTERS].encode("utf-8", "replace").decode() if reply.text else ""
        tokens = self.codec.encode(text, add_special_tokens=False) if text else []
        if not tokens:
            return response
        written = tuple(tokens[:room])
        called.tokens += len(written)
        request = _with_reply(response.going_on(), written, version)
        return request if len(tokens) < room else request.ended("length")


def calls_in(drawn: Sequence[bool]) -> int:
    """How often a tool has written into a response: runs of tokens that were not drawn."""
    return sum(1 for before, now in zip((True, *drawn), drawn, strict=False) if before and not now)


def _with_reply(request: Request, written: tuple[int, ...], version: int) -> Request:
    begun, count = request.begun, len(written)
    return replace(
        request,
        begun=Begun(
            (*begun.tokens, *written),
            (*begun.logprobs, *(0.0,) * count),
            (*begun.versions, *(version,) * count),
            (*begun.drawn, *(False,) * count),
        ),
    )


def _emptied(finished: list[Response]) -> list[Response]:
    taken = finished.copy()
    finished.clear()
    return taken
