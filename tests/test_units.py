"""Numbers as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.units import bytes_text, count_text, seconds_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (2.5e-6, "2.5 µs"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (99.4, "99.4 s"),
        (114.2, "1 min 54 s"),
        (3599.2, "59 min 59 s"),
        (3599.7, "1 h 00 min"),
        (3720.0, "1 h 02 min"),
        (-2.0, "-2 s"),
    ],
)
def test_times_have_three_digits_or_whole_seconds(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@given(st.floats(100.0, 3599.0))
def test_minutes_lose_less_than_a_second(seconds: float) -> None:
    minutes, _, rest, _ = seconds_text(seconds).split()
    assert abs(60 * int(minutes) + int(rest) - seconds) <= 0.5


def test_bytes_and_counts_have_their_units() -> None:
    assert [bytes_text(n) for n in (512, 1536, 3 * 2**30)] == ["512 B", "1.5 KiB", "3 GiB"]
    assert [count_text(n) for n in (7, 1_234_567)] == ["7", "1.23M"]
