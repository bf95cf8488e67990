"""Scalars of a job file. YAML reads `3e-4` as text and `yes` as true: the first is taken, the second refused."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool

from rpeg.errors import InputError
from rpeg.job.paths import check_path
from rpeg.job.problems import show


def number(value: object) -> object:
    """A finite float, from a number or from text such as 3e-4."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"is {show(value)}, must be a number.")
    try:
        result = float(value)
    except (ValueError, OverflowError):
        raise ValueError(f"is {show(value)}, must be a number.") from None
    if not math.isfinite(result):
        raise ValueError(f"is {show(value)}, must be a finite number.")
    return result


def whole(value: object) -> object:
    """An int, from a whole number in any notation (64, 64.0, 1e3)."""
    result = number(value)
    assert isinstance(result, float)
    if not result.is_integer():
        raise ValueError(f"is {show(value)}, must be a whole number.")
    return value if isinstance(value, int) else int(result)


def text(value: object) -> object:
    """A non-empty string."""
    if not isinstance(value, str):
        raise ValueError(f"is {show(value)}, must be text. Put it in quotes if it is meant so.")
    if not value.strip():
        raise ValueError("is empty, must be text.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError(f"is {show(value)}, a lone surrogate is no character. Remove it.")
    return value


def path(value: object) -> object:
    """Text that can name a file."""
    try:
        check_path(str(text(value)))
    except InputError as error:
        raise ValueError(str(error)) from None
    return value


Number = Annotated[float, BeforeValidator(number)]
Whole = Annotated[int, BeforeValidator(whole)]
Text = Annotated[str, BeforeValidator(text)]


def path_or_none(value: object) -> object:
    """Text that can name a file, or that there is none: ''."""
    return value if value == "" else path(value)


PathText = Annotated[str, BeforeValidator(path)]
OptionalPathText = Annotated[str, BeforeValidator(path_or_none)]
Flag = StrictBool

Positive = Annotated[Number, Field(gt=0)]
NonNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(gt=0, le=1)]
Decay = Annotated[Number, Field(ge=0, lt=1)]

# Upper bounds are far beyond use: a larger number is a slip, and would fill the memory or never end.
MOST = 10_000_000
LARGEST = 2**20
STALEST = 16
Count = Annotated[Whole, Field(ge=1, le=MOST)]
CountOrNone = Annotated[Whole, Field(ge=0, le=MOST)]
Size = Annotated[Whole, Field(ge=1, le=LARGEST)]
"""Samples or tokens."""
Staleness = Annotated[Whole, Field(ge=0, le=STALEST)]
Seed = Annotated[Whole, Field(ge=0, lt=2**63)]

DType = Literal["float32", "float64", "bfloat16"]
