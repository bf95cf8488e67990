"""`MicroBatches`: how the training backend cuts samples into padded micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MicroBatches:
    """m micro-batches, longest first: (m,) samples, padded length and response tokens of each."""

    rows: Ints
    length: Ints
    response_tokens: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def padded_tokens(self) -> int:
        """All tokens that pass the model, padding included."""
        return int((self.rows * self.length).sum())


def split(prompt_lengths: Ints, response_lengths: Ints, microbatch: int) -> MicroBatches:
    """At most `microbatch` samples of like length together, right-padded: as `rpeg.backends.training.microbatch`.

    prompt_lengths, response_lengths: (n,) in any order; m = ceil(n / microbatch).
    """
    total = prompt_lengths + response_lengths
    order = np.argsort(-total, kind="stable")
    starts = np.arange(0, len(total), microbatch)
    if not len(starts):
        return MicroBatches(*(np.zeros(0, dtype=np.int64),) * 3)
    return MicroBatches(
        np.minimum(microbatch, len(total) - starts),
        total[order[starts]],
        np.add.reduceat(response_lengths[order], starts),
    )


def concatenate(parts: list[MicroBatches]) -> MicroBatches:
    """All micro-batches of several splits, one after another."""
    empty = np.zeros(0, dtype=np.int64)
    return MicroBatches(
        np.concatenate([empty, *(p.rows for p in parts)]),
        np.concatenate([empty, *(p.length for p in parts)]),
        np.concatenate([empty, *(p.response_tokens for p in parts)]),
    )
