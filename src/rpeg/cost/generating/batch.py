"""`Batch`: samples dealt to the replicas of a GENERATE stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rpeg.cost.generating.lengths import Lengths
from rpeg.errors import InputError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Batch:
    """(replicas, samples) tables; where a replica has fewer samples, some of length 0 fill its row.

    heads: tokens of each sample's prompt that are to be prefilled; 0 where another sample of the group brings them.
    order: (input samples,) the place of each in the flattened table. Compared by identity: one is dealt once.
    """

    prompts: Ints
    responses: Ints
    heads: Ints
    order: Ints

    @property
    def replicas(self) -> int:
        """Rows of the tables."""
        return int(self.prompts.shape[0])

    @property
    def most(self) -> int:
        """Samples of the fullest replica."""
        return int(self.prompts.shape[1])


@lru_cache(maxsize=32)
def deal(lengths: Lengths, samples_per_prompt: int, share: bool, replicas: int) -> Batch:
    """Contiguous blocks of whole groups for each replica, as even as can be.

    share: a group's prompt is prefilled once. InputError where groups are not whole.
    """
    prompts, responses = lengths.prompts, lengths.responses
    n = samples_per_prompt
    _check(prompts, responses, n)
    groups = len(prompts) // n
    bounds = np.arange(replicas + 1) * groups // replicas * n
    most = int(np.diff(bounds).max(initial=0))
    at = np.arange(len(prompts))
    row = np.searchsorted(bounds, at, side="right") - 1
    order = row * most + at - bounds[row]
    first = (at % n == 0) if share else np.ones(len(at), bool)
    tables = []
    for values in (prompts, responses, np.where(first, prompts, 0)):
        table = np.zeros(replicas * most, np.int64)
        table[order] = values
        tables.append(table.reshape(replicas, most))
    return Batch(tables[0], tables[1], tables[2], order)


def _check(prompts: Ints, responses: Ints, n: int) -> None:
    if n < 1 or len(prompts) % n:
        whole = len(prompts) // n * n if n > 0 else 0
        raise InputError(
            f"generate: {len(prompts)} samples are not whole groups of {n}. Nearest: {whole} or {whole + max(n, 1)}"
        )
    if len(prompts) == 0 or prompts.min() < 0 or responses.min() < 0:
        raise InputError("generate: at least one sample is needed, and no length below 0")
