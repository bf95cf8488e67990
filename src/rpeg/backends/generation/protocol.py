"""What a generation backend is: requests in, responses out as they finish."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rpeg.backends.samples import Array, Ints, Samples
from rpeg.errors import InputError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class Begun:
    """What there is of a response that is not finished; each is (length,), token by token.

    logprobs, versions, drawn: as a `Response` has them. Raises ValueError where they differ in length.
    """

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    drawn: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        _check_lengths(len(self.tokens), self.logprobs, self.versions, self.drawn)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class Request:
    """One sample to generate. `id`, unique in the run, keys its randomness; `group` is its prompt's id.

    begun: of a response that goes on, what there is of it. Its next token is drawn with the randomness of its place.
    """

    id: int
    group: int
    prompt: tuple[int, ...]
    begun: Begun = field(default_factory=Begun)

    @property
    def context(self) -> tuple[int, ...]:
        """All tokens that the next one follows."""
        return self.prompt + self.begun.tokens

    def ended(self, finish: Finish) -> Response:
        """What there is of the response, as one that is finished."""
        begun = self.begun
        return Response(
            self.id,
            self.group,
            self.prompt,
            np.asarray(begun.tokens, dtype=np.int64),
            np.asarray(begun.logprobs, dtype=np.float64),
            np.asarray(begun.versions, dtype=np.int64),
            np.asarray(begun.drawn, dtype=np.bool_),
            finish,
        )


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn.

    top_p = 1 and top_k = 0 truncate nothing. A stop token ends a response and belongs to it. max_new_tokens: of a
    whole response, what it had begun with included.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 128
    stop_token_ids: tuple[int, ...] = ()
    greedy: bool = False

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise InputError(f"temperature is {self.temperature}, must be > 0; for argmax use greedy")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}, must be in (0, 1]; 1 truncates nothing")
        if self.top_k < 0:
            raise InputError(f"top_k is {self.top_k}, must be >= 0; 0 truncates nothing")
        if self.max_new_tokens < 1:
            raise InputError(f"max_new_tokens is {self.max_new_tokens}, must be >= 1")

    @property
    def truncates(self) -> bool:
        """Whether some tokens are never drawn."""
        return self.top_p < 1 or self.top_k > 0


@dataclass(frozen=True, eq=False)
class Response:
    """A finished sample.

    tokens: (length,) int64, the stop token included when finish is `stop`.
    logprobs: (length,) float64, of each token in the tempered but untruncated distribution (nats).
    versions: (length,) int64, the version of the weights that each token was drawn with.
    drawn: (length,) bool, False at tokens that a tool has written: their log-probabilities are 0, and no loss is of
    them.
    """

    id: int
    group: int
    prompt: tuple[int, ...]
    tokens: Ints
    logprobs: Floats
    versions: Ints
    drawn: Bools
    finish: Finish

    def __post_init__(self) -> None:
        _check_lengths(len(self.tokens), self.logprobs, self.versions, self.drawn)

    def __len__(self) -> int:
        return len(self.tokens)

    def going_on(self) -> Request:
        """A request to go on after all of its tokens."""
        begun = Begun(
            tuple(self.tokens.tolist()),
            tuple(self.logprobs.tolist()),
            tuple(self.versions.tolist()),
            tuple(self.drawn.tolist()),
        )
        return Request(self.id, self.group, self.prompt, begun)


@dataclass(frozen=True, eq=False)
class Setup:
    """What an engine is made from.

    module: a Hugging Face causal language model, which an engine may use itself or copy; its weights are of `version`.
    None where it is in another process: weights of `dtype` then come by `load_weights`.
    directory: of its files. slots: responses at once. max_length: longest prompt + response in tokens.
    pad_token_id: any id of the vocabulary. truncates: whether sampling will ask for top_p or top_k.
    """

    module: nn.Module | None
    directory: str
    slots: int
    max_length: int
    device: torch.device
    version: int
    pad_token_id: int = 0
    truncates: bool = False
    dtype: torch.dtype = torch.float32


More = Callable[[], Sequence[Request]]
"""Asked before each of an engine's steps for further requests; the one of an idle engine may wait for them."""


def nothing_more() -> Sequence[Request]:
    """No further requests."""
    return ()


class Generates(Protocol):
    """What takes requests and gives responses.

    *Interruption.* `stop` ends a generation at its next step; `unfinished` then says what is left of it, and whatever
    generates goes on with these requests. An engine that has still the keys and values of their tokens uses them
    (`keep_kv`); after `drop_caches` it computes them anew (`reprefill`). Without a change of weights the responses are
    those of a generation that nobody stopped, up to rounding.
    """

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        seed: int,
        version: int,
        more: More = nothing_more,
    ) -> Iterator[Response]:
        """Each response as soon as it is finished; a pure function of (weights, request, sampling, seed).

        Raises InputError, before anything is computed, for a request that cannot be served.
        """
        ...

    def stop(self) -> None:
        """Lets the generation that goes on end at its next step, from any thread; without one it does nothing."""
        ...

    @property
    def unfinished(self) -> tuple[Request, ...]:
        """What the last generation has left where it was stopped, to go on with; empty where it was not."""
        ...


class GenerationEngine(Generates, Protocol):
    """A generation backend: one file of this package, named in its registry."""

    @property
    def cache_bytes(self) -> int:
        """Memory that KV buffers hold now."""
        ...

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Takes new weights in place. Keys and values of older ones stay until `drop_caches`.

        weights: all, whole, by Hugging Face names, tied ones under each of their names. An engine over the module of a
        trainer has them already. Raises RunError while a generation goes on.
        """
        ...

    def score(self, tokens: Ints) -> Floats:
        """(n - 1,) the engine's own log-probabilities of n tokens after the first, at temperature 1: what a canary
        compares with the trainer's."""
        ...

    def drop_caches(self) -> None:
        """Forgets everything that was computed from weights: to be called whenever they change."""
        ...

    def sleep(self) -> None:
        """Gives back the memory of KV buffers, and of weights that are the engine's own: these are to be loaded again
        before it generates."""
        ...


class Backend(Protocol):
    """The class of a generation backend."""

    def made(self, setup: Setup) -> GenerationEngine:
        """An engine with the weights of the setup's module. InputError where it cannot serve such a model."""
        ...


def to_samples(responses: Iterable[Response]) -> Samples:
    """The responses, ordered by id, as one batch.

    Token columns `behaviour_logprobs` and `versions`; sample columns `group` and `finish`
    (1: stopped by itself, 0: cut at max_new_tokens).
    """
    ordered = sorted(responses, key=lambda response: response.id)
    drawn, written = [r.drawn for r in ordered], any(not r.drawn.all() for r in ordered)
    token: dict[str, Array] = {
        "behaviour_logprobs": _flat([r.logprobs[r.drawn] for r in ordered], np.float64),
        "versions": _flat([r.versions[r.drawn] for r in ordered], np.int64),
    }
    return Samples(
        _ints([r.id for r in ordered]),
        _ints([int(d.sum()) for d in drawn]),
        token,
        {
            "group": _ints([r.group for r in ordered]),
            "finish": _ints([r.finish == "stop" for r in ordered]),
        },
        _ints([token for r in ordered for token in r.prompt]),
        _ints([len(r.prompt) for r in ordered]),
        _flat([r.tokens for r in ordered], np.int64),
        _ints([len(r) for r in ordered]) if written else None,
        _flat(drawn, np.bool_) if written else None,
    )


def _check_lengths(tokens: int, *columns: Sequence[Any] | Array) -> None:
    found = [len(column) for column in columns]
    if found != [tokens] * len(columns):
        raise ValueError(
            f"{tokens} tokens have log-probabilities, versions and marks of drawn ones of lengths {found}"
        )


def _ints(values: Sequence[int]) -> Ints:
    return np.asarray(values, dtype=np.int64)


def _flat(columns: Sequence[Array], dtype: type[np.generic]) -> Array:
    return np.concatenate(columns) if columns else np.zeros(0, dtype)
