"""Parts of nearly equal tokens."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.schedule.balance import balance


def _fullest(lengths: list[int], parts: tuple[tuple[int, ...], ...]) -> int:
    return max(sum(lengths[i] for i in part) for part in parts)


@given(st.lists(st.integers(1, 4000), max_size=30), st.integers(1, 6), st.booleans())
@settings(max_examples=80, deadline=None)
def test_every_position_is_in_one_part(lengths: list[int], parts: int, equal: bool) -> None:
    lengths = lengths[: len(lengths) // parts * parts] if equal else lengths
    found = balance(lengths, parts, equal_counts=equal)
    assert len(found) == parts
    assert sorted(i for part in found for i in part) == list(range(len(lengths)))
    if equal:
        assert {len(part) for part in found} == {len(lengths) // parts}
    if lengths:
        assert _fullest(lengths, found) >= -(-sum(lengths) // parts)


@given(st.lists(st.integers(1, 50), min_size=2, max_size=8))
@settings(max_examples=40, deadline=None)
def test_two_parts_are_near_the_best_there_is(lengths: list[int]) -> None:
    total = sum(lengths)
    best = min(
        max(one, total - one)
        for one in (
            sum(n for n, on in zip(lengths, choice, strict=True) if on)
            for choice in product((0, 1), repeat=len(lengths))
        )
    )
    assert _fullest(lengths, balance(lengths, 2)) <= 7 / 6 * best  # the bound of differencing into two parts


def test_the_longest_stands_alone_where_it_must() -> None:
    assert balance([9, 1, 1, 1, 1, 1], 2) == ((0,), (1, 2, 3, 4, 5))


def test_exchanges_better_what_differencing_leaves() -> None:
    """Of 4 to 8 differencing makes 16 and 14, the textbook example; 15 and 15 is best."""
    lengths = [4, 5, 6, 7, 8]
    assert _fullest(lengths, balance(lengths, 2)) == 15


def test_counts_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="5 lengths do not divide into 2 parts"):
        balance([1, 2, 3, 4, 5], 2, equal_counts=True)
