"""1 when the mathematical expression that a response ends with equals the answer: by symbols, not by spelling."""

from __future__ import annotations

import logging

from math_verify import parse, verify

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own time limits are off
ISOLATED = True  # sympy may take for ever to simplify


def reward(prompt_text: str, response_text: str, answer: str) -> float:
    """1.0 or 0.0, by math-verify (https://github.com/huggingface/Math-Verify): LaTeX in \\boxed{} or $…$, or a number.

    answer: the expression, with or without dollars. ValueError when it holds none. Its time limit is the caller's:
    math-verify's own are switched off, as they would swallow what went wrong.
    """
    # Without dollars only the number in x^2 - 1 would be found.
    gold = _parse(answer if "$" in answer or "\\boxed" in answer else f"${answer}$")
    if not gold:
        raise ValueError(f"the answer {answer!r} holds no mathematical expression")
    found = _parse(response_text)
    return float(bool(found) and bool(verify(gold, found, timeout_seconds=None)))


def _parse(text: str) -> list[object]:
    return list(parse(text, parsing_timeout=None))
