"""Parts of nearly equal tokens."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

Part = tuple[int, tuple[int, ...]]
"""(tokens, positions)."""
NOTHING: Part = (0, ())


def balance(lengths: Sequence[int], parts: int, *, equal_counts: bool = False) -> tuple[tuple[int, ...], ...]:
    """`parts` tuples of positions in `lengths` with nearly equal sums, by the largest differencing method.

    (Karmarkar and Karp, Univ. of California TR 81/113, 1982; for several parts Michiels et al., Algorithmica 2003.)
    equal_counts: parts hold as many positions each, which the number of lengths must allow. Then pairs are exchanged
    between parts as long as the fuller gets emptier. Each part's positions are in ascending order.
    """
    if equal_counts and len(lengths) % parts:
        raise ValueError(f"{len(lengths)} lengths do not divide into {parts} parts of as many")
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    if equal_counts:
        rows = [order[start : start + parts] for start in range(0, len(order), parts)]
        starts = [[_one(lengths, i) for i in row] for row in rows]
    else:
        starts = [[_one(lengths, i), *[NOTHING] * (parts - 1)] for i in order]
    found = [_differenced(starts or [[NOTHING] * parts], ties) for ties in (1, -1)]
    settled = [_exchanged([list(p) for _, p in differenced], lengths) for differenced in found]
    best = min(settled, key=lambda made: max(sum(lengths[i] for i in part) for part in made))
    return tuple(tuple(sorted(part)) for part in best)


def _one(lengths: Sequence[int], position: int) -> Part:
    return lengths[position], (position,)


def _differenced(starts: Sequence[Sequence[Part]], ties: int) -> list[Part]:
    """Joins the two most uneven partitions, fullest parts to emptiest, until one is left.

    ties: 1 takes the oldest of equally uneven ones, -1 the newest.
    """
    heap = [
        (_spread(start), ties * number, sorted(start, reverse=True)) for number, start in enumerate(starts)
    ]
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        _, _, first = heapq.heappop(heap)
        _, _, second = heapq.heappop(heap)
        joined = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(first, reversed(second), strict=True)]
        heapq.heappush(heap, (_spread(joined), ties * number, sorted(joined, reverse=True)))
        number += 1
    return heap[0][2]


def _spread(parts: Sequence[Part]) -> int:
    """Less the fullest's lead over the emptiest, so that the most uneven comes first."""
    return min(p[0] for p in parts) - max(p[0] for p in parts)


def _exchanged(parts: list[list[int]], lengths: Sequence[int]) -> list[list[int]]:
    """Swaps one position of the fullest part for a shorter one elsewhere while the fuller of the two gets emptier."""
    while True:
        sums = [sum(lengths[i] for i in part) for part in parts]
        fullest = max(range(len(parts)), key=sums.__getitem__)
        swap = _best_swap(parts, lengths, sums, fullest)
        if swap is None:
            return parts
        mine, other, theirs = swap
        parts[fullest].remove(mine)
        parts[other].remove(theirs)
        parts[fullest].append(theirs)
        parts[other].append(mine)


def _best_swap(
    parts: Sequence[Sequence[int]], lengths: Sequence[int], sums: Sequence[int], fullest: int
) -> tuple[int, int, int] | None:
    best, swap = sums[fullest], None
    for other, part in enumerate(parts):
        for mine in parts[fullest] if other != fullest else ():
            for theirs in part:
                gain = lengths[mine] - lengths[theirs]
                fuller = max(sums[fullest] - gain, sums[other] + gain)
                if gain > 0 and fuller < best:
                    best, swap = fuller, (mine, other, theirs)
    return swap
