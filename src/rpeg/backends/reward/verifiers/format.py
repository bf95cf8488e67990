"""1 when a response has the asked form: a regular expression that matches all of it, or tags one after another."""

from __future__ import annotations

import re
from collections.abc import Sequence

ISOLATED = True  # a user's expression may take exponential time


def reward(
    prompt_text: str,
    response_text: str,
    answer: str,
    *,
    pattern: str | None = None,
    tags: Sequence[str] | None = None,
) -> float:
    """1.0 or 0.0; white space round the response does not count.

    pattern: must match the whole response; its dot matches line ends too.
    tags: `<tag>…</tag>` for each, in this order, each once and with something in it, and nothing outside them.
    """
    text = response_text.strip()
    if pattern is not None:
        return float(re.fullmatch(pattern, text, re.DOTALL) is not None)
    return float(_has_tags(text, tags or ()))


def _has_tags(text: str, tags: Sequence[str]) -> bool:
    for tag in tags:
        begin, end = f"<{tag}>", f"</{tag}>"
        text = text.lstrip()
        if not text.startswith(begin) or text.count(begin) != 1 or text.count(end) != 1:
            return False
        inside, _, text = text.removeprefix(begin).partition(end)
        if not inside.strip():
            return False
    return not text.strip()
