"""Errors, ranks and pairs against cases worked by hand, and their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.validation.statistics import Fits, fits, ordered_pairs, ranks, spearman, statistics

positive = st.floats(1e-3, 1e6)
pairs_of = st.lists(st.tuples(positive, positive), min_size=1, max_size=30)


def test_errors_of_three_records() -> None:
    s = statistics(4, [10.0, 20.0, 40.0], [11.0, 16.0, 40.0])  # errors +0.1, −0.2, 0
    assert (s.count, s.predicted, s.pairs) == (4, 3, 3)
    assert s.mape == pytest.approx(0.1)
    assert s.median_ape == pytest.approx(0.1)
    assert s.p90_ape == pytest.approx(0.1 + 0.8 * 0.1)  # rank 0.9 · 2 = 1.8 of 0, 0.1, 0.2
    assert s.bias == pytest.approx(-0.1 / 3)
    assert (s.spearman, s.ordered) == (1.0, 1.0)


def test_nothing_predicted() -> None:
    s = statistics(7, [], [])
    assert (s.count, s.predicted, s.pairs) == (7, 0, 0)
    assert s.mape is None
    assert s.ordered is None


def test_a_single_record_has_errors_but_no_ranks() -> None:
    s = statistics(1, [2.0], [3.0])
    assert s.mape == s.median_ape == s.p90_ape == s.bias == 0.5
    assert s.spearman is None
    assert s.ordered is None


def test_equal_values_share_ranks() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_rank_correlation() -> None:
    # 1 − 6 Σd² / (n (n² − 1)) = 1 − 6 · 4 / 60
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([2.0, 1, 4, 3])) == pytest.approx(0.6)
    # with a tie: Σab = 4.5 over √(4.5 · 5)
    assert spearman(np.array([1.0, 2, 2, 3]), np.array([1.0, 3, 2, 4])) == pytest.approx(4.5 / 22.5**0.5)


@pytest.mark.parametrize("y", [[1.0, 2.0], [5.0, 5.0, 5.0]])
def test_too_few_or_constant_values_have_no_rank_correlation(y: list[float]) -> None:
    assert spearman(np.arange(len(y), dtype=float), np.array(y)) is None


def test_pairs_a_tenth_apart() -> None:
    # 100 and 105 are too near to count; 100–120 and 105–120 do, and the second is predicted the wrong way round
    measured, predicted = np.array([100.0, 105.0, 120.0]), np.array([1.0, 3.0, 2.0])
    assert ordered_pairs(measured, predicted) == (1, 2)


def test_equal_predictions_are_not_in_order() -> None:
    assert ordered_pairs(np.array([1.0, 2.0]), np.array([5.0, 5.0])) == (0, 1)


@given(pairs_of)
def test_pairs_agree_with_counting_each(rows: list[tuple[float, float]]) -> None:
    apart = [(a, b) for a in rows for b in rows if b[0] > a[0] * 1.1]
    right = sum(b[1] > a[1] for a, b in apart)
    x, y = np.array(rows).T
    assert ordered_pairs(x, y) == (right, len(apart))


@given(pairs_of, st.floats(0.1, 10))
def test_a_unit_changes_nothing(rows: list[tuple[float, float]], unit: float) -> None:
    x, y = np.array(rows).T
    before, after = statistics(len(x), x, y), statistics(len(x), x * unit, y * unit)  # type: ignore[arg-type]
    assert after.mape == pytest.approx(before.mape, rel=1e-6, abs=1e-9)
    assert after.bias == pytest.approx(before.bias, rel=1e-6, abs=1e-9)


@given(st.lists(st.integers(0, 20), min_size=3, max_size=20))
def test_rank_correlation_sees_only_ranks(values: list[int]) -> None:
    x, y = np.array(values, float), np.array(values[::-1], float)
    assert spearman(x, y) == spearman(np.exp(x), 3 * y + 1)


def test_what_fits() -> None:
    found = fits(
        [
            (True, True, True),
            (True, True, True),
            (True, True, False),  # a false alarm
            (False, True, False),
            (False, True, True),  # a missed lack of memory
            (False, False, True),  # crashed, perhaps for another reason
        ]
    )
    assert found == Fits(ran=(2, 1), oom=(1, 1), crashed=(1, 0))
    assert found.false_alarms == pytest.approx(1 / 3)
    assert found.right == pytest.approx(3 / 6)


def test_nothing_known_of_what_fits() -> None:
    assert fits([]) == Fits()
    assert Fits().false_alarms is None
    assert Fits().right is None
