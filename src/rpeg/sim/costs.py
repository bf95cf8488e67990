"""What the simulator asks: how long an item takes, for the samples that it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Samples by id, with the tokens of their prompt and response. All three of one length, in the same order.

    apart: each has a prompt of its own; else groups of them have one, and are whole where they are generated.
    """

    ids: tuple[int, ...] = ()
    prompt_lengths: tuple[int, ...] = ()
    response_lengths: tuple[int, ...] = ()
    apart: bool = False

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
        kind = b"apart" if self.apart else b""
        return blake2b(prompts.tobytes() + responses.tobytes() + kind, digest_size=16).digest()

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

    def going_on(self, begun: Mapping[int, int]) -> Batch:
        """As a generator meets it that has to finish it: what is there of a response, by id, has become its prompt."""
        there = [min(begun.get(i, 0), n) for i, n in zip(self.ids, self.response_lengths, strict=True)]
        prompts = tuple(p + n for p, n in zip(self.prompt_lengths, there, strict=True))
        left = tuple(r - n for r, n in zip(self.response_lengths, there, strict=True))
        return Batch(self.ids, prompts, left, apart=True)

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


def answered(stage: Stage, batch: Batch, samples_per_prompt: int) -> tuple[Batch, Ints, int]:
    """What a generator answers for a batch, where each sample's answer is, and how many of a row share a prompt.

    A greedy one answers a prompt once.
    """
    if any(op.name == "sample_greedy" for op in stage.ops):
        return *batch.once_a_prompt(samples_per_prompt), 1
    return batch, np.arange(len(batch.ids)), 1 if batch.apart else samples_per_prompt
