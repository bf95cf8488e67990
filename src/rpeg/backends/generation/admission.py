"""Requests before an engine takes them: their order, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

from rpeg.backends.generation.protocol import Request, Sampling
from rpeg.errors import InputError


def by_prompt(requests: Sequence[Request]) -> list[Request]:
    """Requests of one prompt one after another, prompts by first appearance."""
    rank: dict[tuple[int, ...], int] = {}
    for request in requests:
        rank.setdefault(request.prompt, len(rank))
    return sorted(requests, key=lambda request: rank[request.prompt])


def check(requests: Sequence[Request], sampling: Sampling, *, vocabulary: int, max_length: int) -> None:
    """Raises InputError for what could only fail later, or be wrong in silence."""
    if len({request.id for request in requests}) < len(requests):
        raise InputError("two requests have the same id, which would give them the same randomness")
    unknown = [token for token in sampling.stop_token_ids if not 0 <= token < vocabulary]
    if unknown:
        raise InputError(f"stop token {unknown[0]} is not in the vocabulary of {vocabulary}")
    for request in requests:
        _check_one(request, sampling, vocabulary, max_length)


def _check_one(request: Request, sampling: Sampling, vocabulary: int, max_length: int) -> None:
    prompt = request.prompt
    if not prompt:
        raise InputError(f"request {request.id} has an empty prompt; give it at least a start token")
    if min(request.context) < 0 or max(request.context) >= vocabulary:
        raise InputError(
            f"request {request.id} has token {max(request.context)}, outside the vocabulary of {vocabulary}: "
            "tokenizer and model do not belong together"
        )
    if len(request.begun) >= sampling.max_new_tokens:
        raise InputError(
            f"request {request.id} has begun with {len(request.begun)} tokens, and a response has at most "
            f"{sampling.max_new_tokens} (max_new_tokens): it is finished"
        )
    if len(prompt) + sampling.max_new_tokens > max_length:
        raise InputError(
            f"request {request.id}: prompt of {len(prompt)} tokens + max_new_tokens "
            f"{sampling.max_new_tokens} exceed the context limit of {max_length}; "
            "shorten either or raise the limit"
        )
