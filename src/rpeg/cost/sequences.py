"""`Sequences`: what costs need to know of the lengths of a batch, as a small value that can be a key."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sequences:
    """A batch of sequences.

    count: how many. tokens: of all together. squares: sum of squared lengths, which attention costs follow.
    longest: tokens of the longest. scored: tokens that pass the lm head for a loss or a log-probability.
    """

    count: int
    tokens: int
    squares: float
    longest: int
    scored: int

    @staticmethod
    def equal(count: int, length: int, scored: int | None = None) -> Sequences:
        """`count` sequences of one length; `scored` tokens of each pass the head, all by default."""
        return Sequences(
            count,
            count * length,
            float(count) * length * length,
            length if count else 0,
            count * (length if scored is None else scored),
        )

    @staticmethod
    def of(prompt_lengths: Ints, response_lengths: Ints) -> Sequences:
        """Samples whose response tokens are scored. Both (n,)."""
        total = prompt_lengths + response_lengths
        return Sequences(
            len(total),
            int(total.sum()),
            float((total.astype(np.float64) ** 2).sum()),
            int(total.max(initial=0)),
            int(response_lengths.sum()),
        )

    @property
    def mean_length(self) -> float:
        """Tokens a sequence."""
        return self.tokens / self.count if self.count else 0.0

    def share(self, parts: int) -> Sequences:
        """One of `parts` equal shares, rounded up to whole sequences."""
        if parts <= 1 or not self.count:
            return self
        count = -(-self.count // parts)
        return Sequences(
            count,
            round(self.tokens * count / self.count),
            self.squares * count / self.count,
            self.longest,
            round(self.scored * count / self.count),
        )
