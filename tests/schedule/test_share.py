"""Sharing samples among ranks."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.schedule import share

samples = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(samples, st.integers(1, 8), st.integers(0, 99))
def test_shares_are_a_partition_of_even_counts_whatever_the_order(
    lengths: list[int], shares: int, seed: int
) -> None:
    ids = [7 * i for i in range(len(lengths))]
    parts = share(ids, lengths, shares)
    assert sorted(i for part in parts for i in part) == ids
    counts = [len(part) for part in parts]
    assert max(counts) - min(counts) <= 1
    assert all(list(part) == sorted(part) for part in parts)
    shuffled = list(zip(ids, lengths, strict=True))
    random.Random(seed).shuffle(shuffled)
    assert share([i for i, _ in shuffled], [n for _, n in shuffled], shares) == parts


@settings(max_examples=100, deadline=None)
@given(samples, st.integers(1, 4))
def test_loads_differ_by_no_more_than_the_longest_sample(lengths: list[int], shares: int) -> None:
    lengths = lengths[: len(lengths) // shares * shares] or [1] * shares
    length = dict(enumerate(lengths))
    loads = [sum(length[i] for i in part) for part in share(list(length), lengths, shares)]
    assert max(loads) - min(loads) <= max(lengths)


def test_longest_samples_go_apart() -> None:
    assert share([0, 1, 2, 3], [9, 9, 1, 1], 2) == ((0, 2), (1, 3))
