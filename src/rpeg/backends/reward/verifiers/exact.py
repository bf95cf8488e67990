"""1 when the response is the answer, but for white space around them."""

from __future__ import annotations


def reward(prompt_text: str, response_text: str, answer: str) -> float:
    """1.0 or 0.0."""
    return float(response_text.strip() == answer.strip())
