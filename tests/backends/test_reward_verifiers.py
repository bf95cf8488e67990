from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.backends.reward.verifiers import exact, numeric
from rpeg.job.rules_reward import verifiers

NUMBERS = [
    ("76", "76"),
    (" 7 then 76.", "76"),
    ("it is -5", "-5"),
    ("12-5", "5"),
    ("12 - 5", "5"),
    ("= +5", "5"),
    ("1,234,567 people", "1234567"),
    ("1,23", "23"),
    ("3.50", "3.5"),
    ("costs $1,200.75!", "1200.75"),
    ("2e3", "2000"),
    ("v1.2.3", "3"),
    ("x76y", "76"),
    ("007", "7"),
    ("= .5", "0.5"),
    ("so -.5", "-0.5"),
    ("so ...5", "5"),
]


@pytest.mark.parametrize(("text", "value"), NUMBERS)
def test_last_number(text: str, value: str) -> None:
    assert numeric.last_number(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "none", "-", "…", ",", "٣"])
def test_no_number(text: str) -> None:
    assert numeric.last_number(text) is None
    assert numeric.reward("", text, "3") == 0.0


def test_numeric_rewards_the_last_number_only() -> None:
    assert numeric.reward("36 + 57 =", " 93", "93") == 1.0
    assert numeric.reward("36 + 57 =", "93 or 94", "93") == 0.0
    assert numeric.reward("", "93.0", "93") == 1.0
    assert numeric.reward("", "9 3", "93") == 0.0
    with pytest.raises(ValueError, match="holds no number"):
        numeric.reward("", "3", "three")


@settings(deadline=None, max_examples=50)
@given(st.integers(-(10**30), 10**30), st.text(alphabet="abc =.", max_size=5))
def test_any_integer_is_found_exactly(value: int, before: str) -> None:
    assert numeric.reward("", f"{before} {value} .", str(value)) == 1.0
    assert numeric.reward("", f"{before} {value}", str(value + 1)) == 0.0


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="019.,-+eE ", max_size=40))
def test_any_text_has_a_number_or_none(text: str) -> None:
    value = numeric.last_number(text)
    assert (value is None) == (not any(c in "019" for c in text))


def test_exact() -> None:
    assert exact.reward("p", " yes\n", "yes") == 1.0
    assert exact.reward("p", "Yes", "yes") == 0.0


def test_the_job_file_knows_every_verifier() -> None:
    assert verifiers() == ("exact", "format", "math", "numeric", "reasoning_gym")
