"""Checks of hyperparameters: each raises InputError with the name, the value and what is allowed."""

from __future__ import annotations

from rpeg.errors import InputError, nearest


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """InputError unless the value of the hyperparameter is one of those known."""
    if value not in known:
        raise InputError(f"{name} '{value}' is unknown. {nearest(str(value), known)}")


def check_range(name: str, value: float, low: float, high: float = float("inf")) -> None:
    """InputError unless low <= value <= high (NaN is in no range)."""
    if not low <= value <= high:
        raise InputError(f"{name} is {value}, but must lie in [{low:g}, {high:g}].")


def check_above(name: str, value: float, low: float) -> None:
    """InputError unless low < value, and the value finite."""
    if not low < value < float("inf"):
        raise InputError(f"{name} is {value}, but must be finite and above {low:g}.")


def check_pair(low_name: str, low: float, high_name: str, high: float) -> None:
    """InputError unless low <= high."""
    if not low <= high:
        raise InputError(
            f"{low_name} is {low} and {high_name} is {high}; {low_name} ≤ {high_name} must hold."
        )
