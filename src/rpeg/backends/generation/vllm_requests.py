"""Requests as vLLM takes them, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rpeg.backends.generation.protocol import Begun, Request, Response, Sampling
from rpeg.backends.generation.sampling import mix, stream_keys
from rpeg.errors import RunError

_SEEDS = 2**63 - 1


@dataclass
class Row:
    """A request that vLLM works on, and what has come of it since it was added."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, tokens: Sequence[int], logprobs: Sequence[Mapping[int, Any]]) -> None:
        """What vLLM has drawn since it last said something."""
        self.tokens += tokens
        self.logprobs += [place[token].logprob for token, place in zip(tokens, logprobs, strict=True)]

    def now(self, version: int) -> Request:
        """The request with all that there is of its response."""
        begun, more = self.request.begun, len(self.tokens)
        return replace(
            self.request,
            begun=Begun(
                (*begun.tokens, *self.tokens),
                (*begun.logprobs, *self.logprobs),
                (*begun.versions, *[version] * more),
                (*begun.drawn, *[True] * more),
            ),
        )

    def response(self, version: int, finish: str) -> Response:
        """The finished sample."""
        if finish not in ("stop", "length"):
            raise RunError(f"vLLM ended sample {self.request.id} with '{finish}'")
        return self.now(version).ended("stop" if finish == "stop" else "length")


def params_of(request: Request, sampling: Sampling, seed: int) -> Any:
    """vLLM's. A generator a request: it begins at a place of its own in each stretch of a response."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    begun = len(request.begun)
    key = mix(stream_keys(seed, np.asarray([request.id], dtype=np.int64)) + np.uint64(begun))
    return SamplingParams(
        temperature=0.0 if sampling.greedy else sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_tokens=sampling.max_new_tokens - begun,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,
        seed=int(key[0]) & _SEEDS,
        logprobs=0,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
