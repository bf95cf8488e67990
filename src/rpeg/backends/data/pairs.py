"""Preference pairs, tokenised as a reward model will read the actor's responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rpeg.backends.data.prompts import chat, shuffle
from rpeg.backends.samples import Samples
from rpeg.errors import InputError
from rpeg.job.preferences import Preference


@dataclass(frozen=True)
class TokenPair:
    """chosen, rejected: tokens of prompt and response. margin: of their scores, wanted at least."""

    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    margin: float = 0.0


@dataclass(frozen=True)
class PairSet:
    """The usable pairs in their order. dropped: how many were not, by reason."""

    pairs: tuple[TokenPair, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.pairs)

    def batch(self, step: int, size: int, seed: int) -> list[TokenPair]:
        """Pairs of a step: step after step through one shuffle of all after another, a pure function of (seed, step)."""
        places = (divmod(place, len(self)) for place in range(step * size, (step + 1) * size))
        return [self.pairs[shuffle(seed, epoch, len(self))[offset]] for epoch, offset in places]


def tokenise_pairs(
    preferences: Iterable[Preference], tokenizer: Any, max_tokens: int, chat_template: bool
) -> PairSet:
    """Without pairs of equal responses and those with more than `max_tokens` tokens, which are counted."""
    dropped: Counter[str] = Counter()
    kept = []
    for preference in preferences:
        both = [
            _tokens(preference.prompt, response, tokenizer, chat_template)
            for response in (preference.chosen, preference.rejected)
        ]
        if both[0] == both[1]:
            dropped["equal responses"] += 1
        elif max(map(len, both)) > max_tokens:
            dropped[f"longer than {max_tokens} tokens"] += 1
        else:
            kept.append(TokenPair(both[0], both[1], preference.margin))
    return PairSet(tuple(kept), dict(dropped))


def as_samples(rows: Sequence[Sequence[int]]) -> Samples:
    """Token rows as samples; the border between prompt and response plays no part in a score."""
    return Samples(
        np.arange(len(rows), dtype=np.int64),
        np.array([len(row) - 1 for row in rows], dtype=np.int64),
        prompts=np.array([row[0] for row in rows], dtype=np.int64),
        prompt_lengths=np.ones(len(rows), dtype=np.int64),
        responses=np.array([token for row in rows for token in row[1:]], dtype=np.int64),
    )


def _tokens(
    prompt: str | tuple[tuple[str, str], ...],
    response: str | tuple[tuple[str, str], ...],
    tokenizer: Any,
    chat_template: bool,
) -> tuple[int, ...]:
    if chat_template:
        asked = (("user", prompt),) if isinstance(prompt, str) else prompt
        answered = (("assistant", response),) if isinstance(response, str) else response
        text = chat(tokenizer, (*asked, *answered), answered=True)
        return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    if not isinstance(prompt, str) or not isinstance(response, str):
        raise InputError("pairs are chats: set data.chat_template: true, or name fields of plain text")
    # As the actor generates: the prompt with its special tokens, the response, the end.
    end = tokenizer.eos_token_id
    head = list(tokenizer(prompt, verbose=False)["input_ids"])
    if head and head[-1] == end:
        head.pop()
    tail = tokenizer(response, add_special_tokens=False, verbose=False)["input_ids"]
    return (*head, *tail, *(() if end is None else (end,)))
