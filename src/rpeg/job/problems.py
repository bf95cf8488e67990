"""What is wrong with a job, as one message: `file:key.path: what is wrong (value), what is allowed, way out`."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rpeg.errors import JobError, nearest

_LONGEST_VALUE = 60

SectionAt = Callable[[tuple[str, ...]], type[BaseModel] | None]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong at a key path; `line` (from 1) where it stands in the file, if it does."""

    key: tuple[str, ...]
    text: str
    line: int | None = None

    def located(self, lines: Mapping[tuple[str, ...], int]) -> Problem:
        """With the line of the key, or of the nearest key above it."""
        above = (self.key[:length] for length in range(len(self.key), 0, -1))
        return replace(self, line=next((lines[key] for key in above if key in lines), None))

    def render(self, file: str) -> str:
        """One line."""
        where = f" (line {self.line})" if self.line else ""
        return f"{file}:{'.'.join(self.key)}{where}: {self.text}"


def stop(file: str, problems: Iterable[Problem]) -> JobError:
    """The error that lists all problems, one a line."""
    lines = [problem.render(file) for problem in problems]
    if len(lines) == 1:
        return JobError(lines[0])
    return JobError(f"{file} has {len(lines)} problems:\n" + "\n".join(f"  {line}" for line in lines))


def show(value: object) -> str:
    """A value as it goes into a message: control characters escaped, shortened."""
    text = _SHORT.repr(value)
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


class _Short(reprlib.Repr):
    """`repr` that looks at no more of a value than is shown: one of a few lines of YAML may hold 10^9 entries."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 8
        self.maxother = 2 * _LONGEST_VALUE

    def repr_str(self, value: str, level: int) -> str:
        return repr(value[: _LONGEST_VALUE + 1])

    def repr_int(self, value: int, level: int) -> str:
        bits = value.bit_length()  # Python refuses to spell out very long ones
        return repr(value) if bits < 1000 else f"an integer of {bits} bits"


_SHORT = _Short()


def sentence(error: Exception) -> str:
    """An error's text with a full stop."""
    text = str(error)
    return text if text.endswith((".", "?", "!")) else f"{text}."


def translate(error: ValidationError, section: SectionAt) -> list[Problem]:
    """Our own words for what pydantic found; `section` finds the model of a section by its key path."""
    return [_problem(detail, section) for detail in error.errors(include_url=False)]


def section_of(root: type[BaseModel], path: Iterable[str]) -> type[BaseModel] | None:
    """The model class of the section at a key path below `root`."""
    section: type[BaseModel] | None = root
    for name in path:
        field = section.model_fields.get(name) if section else None
        candidates = [field.annotation, *get_args(field.annotation)] if field else []
        section = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
    return section


def _problem(detail: ErrorDetails, section_at: SectionAt) -> Problem:
    key = tuple(str(part) for part in detail["loc"])
    section = section_at(key[:-1])
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = section.model_fields if section else ()
        return Problem(key, f"is not a key here. {nearest(key[-1], known)}")
    if kind == "missing":
        field = section.model_fields.get(key[-1]) if section else None
        return Problem(key, f"is missing: {(field and field.description) or 'it has no default'}.")
    if kind == "value_error":
        return Problem(key, str(context["error"]))
    return Problem(key, f"is {show(value)}, {_expected(kind, context, value, detail['msg'])}")


def _plain(bound: float) -> str:
    """A bound without an exponent where it is whole."""
    return str(int(bound)) if float(bound).is_integer() else f"{bound:g}"


def _expected(kind: str, context: Mapping[str, Any], value: object, message: str) -> str:
    """What is allowed instead, for pydantic's error kinds."""
    bounds = {
        "greater_than": ("gt", "must be greater than"),
        "greater_than_equal": ("ge", "must be at least"),
        "less_than": ("lt", "must be less than"),
        "less_than_equal": ("le", "must be at most"),
    }
    if kind in bounds:
        name, words = bounds[kind]
        return f"{words} {_plain(context[name])}."
    if kind == "literal_error":
        allowed = [
            word.strip().strip("'") for word in str(context["expected"]).replace(" or ", ",").split(",")
        ]
        hint = nearest(str(value), allowed) if str(value) not in allowed else ""
        return f"must be one of {', '.join(allowed)}. {hint if 'mean' in hint else ''}".rstrip()
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "must be a group of keys with values, indented below it."
    if kind == "bool_type":
        return "must be true or false."
    if kind in ("tuple_type", "list_type", "too_short", "too_long"):
        return "must be a list in brackets, such as [0.9, 0.999], of the right length."
    return f"{message[:1].lower()}{message[1:]}."
