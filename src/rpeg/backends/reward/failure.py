"""How a verifier can fail on a sample."""

from __future__ import annotations


class TimedOut(Exception):
    """The function took longer than its limit."""


class Failed(Exception):
    """The function raised, died, or gave what is no number."""


class Raised(Failed):
    """The function raised on this sample, and may do well on another."""


def describe(error: BaseException) -> str:
    """The error's type and its first line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
