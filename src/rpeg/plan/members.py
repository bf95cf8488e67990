"""Which samples of a step belong to an item whatever the order in which they complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np

from rpeg.workload import Workload


@dataclass(frozen=True, slots=True)
class Prompts:
    """All samples of these prompts: ranges (first, end) of their index in the step, ascending."""

    ranges: tuple[tuple[int, int], ...]

    def meets(self, other: Prompts) -> bool:
        """Whether some prompt is in both."""
        return any(a < d and c < b for a, b in self.ranges for c, d in other.ranges)


@dataclass(frozen=True, slots=True)
class Minibatches:
    """The samples of a step's minibatches `first` … `end` - 1, as (seed, step) draw them."""

    first: int
    end: int


Members = Prompts | Minibatches


def prompts_of_replica(prompts: int, replica: int, replicas: int) -> range:
    """The prompts, by index in the step, that a generator's replica answers: contiguous, sizes differ by at most 1."""
    return range(prompts * replica // replicas, prompts * (replica + 1) // replicas)


def prompts_of_part(prompts: int, replica: int, replicas: int, part: int, parts: int) -> range:
    """Those of them that a part of its batch holds, where it works through it in `parts` parts."""
    own = prompts_of_replica(prompts, replica, replicas)
    inner = prompts_of_replica(len(own), part, parts)
    return range(own.start + inner.start, own.start + inner.stop)


def prompts_of_round(workload: Workload, replica: int, replicas: int, number: int) -> range:
    """The prompts, by index in the step, that a generator's replica answers in one of the step's rounds."""
    own, first = (
        prompts_of_replica(workload.round_prompts, replica, replicas),
        number * workload.round_prompts,
    )
    return range(first + own.start, first + own.stop)


def ids_of_members(members: Members, workload: Workload, seed: int, step: int) -> tuple[int, ...]:
    """The ids of the samples at a step; of prompts in ascending order, of minibatches one after another as drawn."""
    first, each = step * workload.asked, workload.samples_per_prompt
    if isinstance(members, Prompts):
        ranges = (range(first + a * each, first + b * each) for a, b in members.ranges)
        return tuple(chain.from_iterable(ranges))
    drawn = _drawn(workload.samples, workload.minibatches, seed, step)
    return tuple(i for part in drawn[members.first : members.end] for i in part)


def membership(ids: Sequence[int], workload: Workload, seed: int, step: int) -> list[list[int]]:
    """The ids of each minibatch of each epoch, from (seed, step) alone: arrival order plays no part.

    Of fewer samples than a step is meant to have they are as many, smaller ones, and none is empty.
    """
    ordered = np.sort(np.asarray(ids, dtype=np.int64))
    count = min(workload.minibatches, len(ordered))
    minibatches: list[list[int]] = []
    for epoch in range(workload.epochs if count else 0):
        minibatches += _shuffled(ordered, count, seed, step, epoch)
    return minibatches


def _shuffled(
    ordered: np.typing.NDArray[np.int64], minibatches: int, seed: int, step: int, epoch: int
) -> list[list[int]]:
    shuffled = np.random.default_rng((seed, step, epoch, 0x6D62)).permutation(ordered)
    return [part.tolist() for part in np.array_split(shuffled, minibatches)]


@lru_cache(maxsize=64)
def _drawn(samples: int, minibatches: int, seed: int, step: int) -> list[list[int]]:
    """Of the first epoch, over all samples of a step."""
    return _shuffled(np.arange(samples, dtype=np.int64) + step * samples, minibatches, seed, step, 0)
