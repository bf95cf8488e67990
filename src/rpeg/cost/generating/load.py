"""`Load`: what one forward pass of a replica works on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rpeg.cost.kernels import Amount


@dataclass(frozen=True)
class Load:
    """One pass over all sequences of a replica; numbers, or arrays of one shape for many passes.

    rows: sequences that get one more token. context: tokens that each of them has in the cache, on average.
    prompt_tokens: tokens of prompts in the pass. pairs: of a prompt token and a token it sees (length² / 2).
    outputs: tokens that pass the lm head and are sampled: the rows, and prompts that are complete.
    crowding: where groups of ranks attend to sequences of their own, prompt tokens of the busiest group over the mean.
    """

    rows: Amount = 0.0
    context: Amount = 0.0
    prompt_tokens: Amount = 0.0
    pairs: Amount = 0.0
    outputs: Amount = 0.0
    crowding: Amount = 1.0

    @cached_property
    def tokens(self) -> Amount:
        """That pass the layers. One array for all kernels that ask."""
        if isinstance(self.prompt_tokens, float) and not self.prompt_tokens:
            return self.rows
        if isinstance(self.rows, float) and not self.rows:
            return self.prompt_tokens
        return self.rows + self.prompt_tokens


def decode(rows: Amount, context: Amount) -> Load:
    """One decode step."""
    return Load(rows=rows, context=context, outputs=rows)


def prefill(tokens: Amount, pairs: Amount, prompts: Amount) -> Load:
    """A pass over prompts alone."""
    return Load(prompt_tokens=tokens, pairs=pairs, outputs=prompts)
