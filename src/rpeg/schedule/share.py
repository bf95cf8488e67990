"""Sharing samples among ranks."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache


def share(ids: Sequence[int], lengths: Sequence[int], shares: int) -> tuple[tuple[int, ...], ...]:
    """`shares` tuples of ids with nearly equal tokens and counts that differ by at most one.

    Longest first to the least loaded share that is not full. A function of ids and lengths alone, not of their order:
    whoever calls it with the same samples gets the same shares. Each share's ids are in ascending order.
    """
    if shares == 1:
        return (tuple(sorted(ids)),)
    return _shared(tuple(ids), tuple(lengths), shares)


@lru_cache(maxsize=64)
def _shared(ids: tuple[int, ...], lengths: tuple[int, ...], shares: int) -> tuple[tuple[int, ...], ...]:
    """Kept: every replica and every stage of a step asks the same."""
    by_length = sorted(zip(ids, lengths, strict=True), key=lambda pair: (-pair[1], pair[0]))
    counts = [len(by_length) // shares + (i < len(by_length) % shares) for i in range(shares)]
    heap = [(0, i) for i in range(shares)]
    taken: list[list[int]] = [[] for _ in range(shares)]
    for sample_id, length in by_length:
        load, i = heapq.heappop(heap)
        taken[i].append(sample_id)
        if len(taken[i]) < counts[i]:
            heapq.heappush(heap, (load + length, i))
    return tuple(tuple(sorted(ids)) for ids in taken)
