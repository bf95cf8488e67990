"""Lists and ranges of numbers as commands take them, and prices by name."""

from __future__ import annotations

import re

from rpeg.errors import InputError

_RANGE = re.compile(r"^(\d+)\.\.(\d+)$")
MOST = 64
"""Values of one axis at most: each is planned."""


def counts(option: str, text: str, least: int = 1) -> list[int]:
    """``8,16,24`` and ``8..2048``, which doubles; an ellipsis goes on likewise: ``8,16,…,2048``. Ascending, once each."""
    spelled = re.sub(r"\s+", "", text).replace("…", "...")
    spelled = re.sub(r"(\d+),\.\.\.,(\d+)", r"\1..\2", spelled)
    found: set[int] = set()
    for part in spelled.split(","):
        ends = _RANGE.match(part)
        if ends:
            found.update(_doubled(option, int(ends[1]), int(ends[2])))
        elif part.isascii() and part.isdecimal():
            found.add(int(part))
        else:
            raise InputError(
                f"{option} '{text}': '{part}' is no number. Write 8,16,24 or 8..2048 (doubling)."
            )
    if min(found) < least or len(found) > MOST:
        raise InputError(
            f"{option} '{text}' has {len(found)} values from {min(found)}; at most {MOST} from {least} on can be had"
        )
    return sorted(found)


def names(text: str) -> list[str]:
    """Words between commas, once each."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def prices(option: str, texts: list[str]) -> dict[str, float]:
    """``h100=2.5,h200=3.1`` and several of them."""
    found: dict[str, float] = {}
    for word in names(",".join(texts)):
        name, _, price = word.partition("=")
        try:
            found[name.strip()] = float(price)
        except ValueError:
            raise InputError(f"{option} '{word}' is no name with a price. Write {option} h100=2.5") from None
        if not 0 <= found[name.strip()] < float("inf"):
            raise InputError(f"{option} '{word}': a price is at least 0")
    return found


def _doubled(option: str, first: int, last: int) -> list[int]:
    if not 1 <= first <= last:
        raise InputError(
            f"{option} {first}..{last} has no values: the first is at least 1 and at most the last"
        )
    return [first * 2**k for k in range((last // first).bit_length())]
