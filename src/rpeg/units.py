"""Numbers as people read them. Values are plain floats whose names carry the unit."""

from __future__ import annotations

import math

KIB, MIB, GIB = 1024, 1024**2, 1024**3


def seconds_text(seconds: float) -> str:
    """`0.0123` → ``12.3 ms``; three significant digits, then ``1 min 54 s`` and ``1 h 02 min``."""
    if not math.isfinite(seconds):
        return f"{seconds} s"
    if seconds < 0:
        return "-" + seconds_text(-seconds)
    if seconds == 0:
        return "0 s"
    for limit, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (100.0, 1.0, "s")):
        # 999.6 µs must read 1 ms, not 1e+03 µs: compare the number as it will be printed
        if float(f"{seconds * factor:.3g}") < limit * factor:
            return f"{_three_digits(seconds * factor)} {unit}"
    if round(seconds) < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def bytes_text(count: float) -> str:
    """`1536` → ``1.5 KiB``; binary units, three significant digits."""
    if count < 0:
        return "-" + bytes_text(-count)
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1000:
            break
        value, unit = value / 1024, larger
    return f"{_three_digits(value)} {unit}"


def count_text(count: float) -> str:
    """`1_234_567` → ``1.23M``; decimal prefixes, three significant digits."""
    if count < 0:
        return "-" + count_text(-count)
    value, prefix = float(count), ""
    for larger in ("k", "M", "G", "T", "P", "E"):
        if value < 1000:
            break
        value, prefix = value / 1000, larger
    return f"{_three_digits(value)}{prefix}"


def _three_digits(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"
