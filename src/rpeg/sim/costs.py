"""What the simulator asks: how long an item takes, for the samples that it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rpeg.cost import Cost, Sequences
from rpeg.ir import Stage
from rpeg.plan import Item

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# A token, a version or a number of a column.
_WORD_BYTES = 8

Answer = tuple[Cost, tuple[float, ...]]
"""Of an item: its cost, and of a generator the offset in seconds of each sample of its batch."""


@dataclass(frozen=True)
class Batch:
    """Samples by id, with the tokens of their prompt and response. All three of one length, in the same order."""

    ids: tuple[int, ...] = ()
    prompt_lengths: tuple[int, ...] = ()
    response_lengths: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of prompts and responses together."""
        return sum(self.prompt_lengths) + sum(self.response_lengths)

    @cached_property
    def lengths(self) -> tuple[Ints, Ints]:
        """Tokens of the prompts and of the responses, each (samples,)."""
        return np.array(self.prompt_lengths, dtype=np.int64), np.array(self.response_lengths, dtype=np.int64)

    @cached_property
    def digest(self) -> bytes:
        """Names the lengths in their order, so that equal questions are known without comparing them all."""
        prompts, responses = self.lengths
        return blake2b(prompts.tobytes() + responses.tobytes(), digest_size=16).digest()

    @cached_property
    def numbers(self) -> Ints:
        """The ids, (samples,)."""
        return np.array(self.ids, dtype=np.int64)

    @cached_property
    def sequences(self) -> Sequences:
        """What the costs of training and scoring rest on."""
        return Sequences.of(*self.lengths)

    def data_bytes(self, data: Sequence[str]) -> float:
        """Of these data: whole sequences with versions and log-probabilities, a column of responses, or a number each."""
        if not self.ids:
            return 0.0
        prompts, responses = (int(lengths.sum()) for lengths in self.lengths)
        each = len(self.ids)
        words = {
            "prompts": prompts,
            "rollouts": prompts + 2 * responses,
            "candidates": prompts + 2 * responses,
            "rewards": each,
            "model_rewards": each,
            "candidate_rewards": each,
            "model_candidate_rewards": each,
            "final_values": each,
        }
        return float(_WORD_BYTES * sum(words.get(name, responses) for name in data))

    def once_a_prompt(self, samples_per_prompt: int) -> tuple[Batch, Ints]:
        """The first sample of each prompt, and for every sample the place of its prompt among them."""
        prompts = np.array(self.ids, dtype=np.int64) // samples_per_prompt
        _, first, place = np.unique(prompts, return_index=True, return_inverse=True)
        return self.take(first.tolist()), place

    def take(self, positions: Sequence[int]) -> Batch:
        """The samples at these positions, in this order."""
        return Batch(
            tuple(self.ids[i] for i in positions),
            tuple(self.prompt_lengths[i] for i in positions),
            tuple(self.response_lengths[i] for i in positions),
        )


@dataclass(frozen=True, slots=True)
class Completions:
    """A generator's run: its seconds, and the offset at which each sample of its batch is complete.

    offset_seconds: from the start, in the batch's order, none beyond `seconds`.
    """

    seconds: float
    offset_seconds: tuple[float, ...]


class Costs(Protocol):
    """The seconds of items. Pure: the same question has the same answer.

    An observer (evaluation) gets an empty batch: it answers prompts of its own, which whoever implements this knows.
    """

    @property
    def dispatch_seconds(self) -> float:
        """From a command of the driver to the start of its work on a worker."""

    def duration_seconds(self, item: Item, batch: Batch) -> float:
        """Of any item but a generator's. A gang gets the whole batch, a replica its share."""

    def generation(self, item: Item, batch: Batch) -> Completions:
        """Of a generator's item."""

    def memory_bytes(self, item: Item, lane: str) -> int:
        """The most that the lane's process holds while it runs the item; 0 where unknown."""


def answered(stage: Stage, batch: Batch, samples_per_prompt: int) -> tuple[Batch, Ints]:
    """What a generator answers for a batch, and where each sample's answer is: a greedy one answers a prompt once."""
    if any(op.name == "sample_greedy" for op in stage.ops):
        return batch.once_a_prompt(samples_per_prompt)
    return batch, np.arange(len(batch.ids))
