"""`Batching`: how a rank's samples become micro-batches, as many on every rank as it meets in a pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rpeg.backends.samples import Array, Ints, Samples
from rpeg.backends.training import collectives
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.microbatch import MicroBatch, build, dummy, pack, split
from rpeg.errors import RunError


@dataclass(frozen=True)
class Batching:
    """tokens_per_sample: micro-batches are packed, without padding, up to `microbatch` times so many tokens; None: they
    are of `microbatch` samples, padded."""

    grid: Grid
    device: torch.device
    tokens_per_sample: int | None = None

    def split(self, samples: Samples, microbatch: int) -> list[Ints]:
        """Rows of each micro-batch."""
        if self.tokens_per_sample is None:
            return split(samples, microbatch)
        return pack(samples, microbatch * self.tokens_per_sample)

    def one(self, samples: Samples, rows: Sequence[Ints], position: int) -> MicroBatch:
        """Micro-batch number `position` of a split, a dummy where this rank has no more."""
        if position >= len(rows):
            return dummy(self.device)
        return build(samples.rows(rows[position]), self.device, packed=self.tokens_per_sample is not None)

    def all(self, samples: Samples, rows: Sequence[Ints], *, meets: bool) -> Iterator[MicroBatch]:
        """All of a split, and dummies as long as ranks that it `meets` have more. Collective where it does."""
        (count,) = self.counts([len(rows)], meets=True) if meets else (len(rows),)
        for position in range(count):
            yield self.one(samples, rows, position)

    def counts(self, own: Sequence[int], *, meets: bool) -> list[int]:
        """Micro-batches to make of each minibatch: as many as this rank has, or as any that it `meets`. Collective."""
        ranks = collectives.gather_json(list(own), self.grid.group("dp"), self.device)
        if len({len(r) for r in ranks}) > 1:
            raise RunError(f"ranks were given {[len(r) for r in ranks]} minibatches; give all as many")
        return [max(counts) for counts in zip(*ranks, strict=True)] if meets else list(own)


def in_order(
    samples: Samples, rows: Sequence[Ints], parts: Sequence[Tensor], dtype: type[np.floating[Any]]
) -> Array:
    """What micro-batches gave, as a flat column in the order of the samples; of `dtype` where there are none.

    rows: of each micro-batch, see `Batching.split`. parts: (k,) numbers of each, one a response token.
    """
    if not rows:
        return np.zeros(0, dtype=dtype)
    column = torch.cat(list(parts)).cpu().numpy()
    places = np.arange(len(column))
    where = Samples(samples.ids, samples.lengths, {"place": places}).rows(np.concatenate(rows))
    out = np.empty_like(column)
    out[where.token["place"]] = column
    return out
