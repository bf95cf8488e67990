"""1 when the last number in the response equals the answer."""

from __future__ import annotations

import re
from decimal import Decimal

# 12-5 ends in 5, not in -5; 1,234 is one number, 1,23 are two; .5 is a number, the 5 of "...5" is another.
_NUMBER = re.compile(
    r"(?:(?<![0-9])[-+])?"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|(?<![0-9.])\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,4}(?![0-9]))?"
)


def reward(prompt_text: str, response_text: str, answer: str) -> float:
    """1.0 or 0.0. ValueError when the answer holds no number."""
    expected = last_number(answer)
    if expected is None:
        raise ValueError(f"the answer {answer!r} holds no number")
    return float(last_number(response_text) == expected)


def last_number(text: str) -> Decimal | None:
    """The last integer or decimal in a text, exactly; None when there is none."""
    last = max(_NUMBER.finditer(text), key=re.Match.start, default=None)
    return None if last is None else Decimal(last.group().replace(",", ""))
