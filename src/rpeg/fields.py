"""Reading what files hold: JSON, and the fields of its objects, each with a message that names it and its value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from reprlib import Repr
from typing import Any

from rpeg.errors import InputError, nearest

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60


def shown(value: object) -> str:
    """A value as messages show it: shortened, however long or deep it is."""
    return _SHORT.repr(value)


def parse_json(content: str, where: object) -> Any:
    """The value of a JSON text. InputError names `where` it stands if it cannot be read."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        raise InputError(f"{where} is not JSON: {error}") from None
    except ValueError:  # digits beyond what the interpreter reads
        raise InputError(f"{where} holds a number with too many digits") from None
    except RecursionError:
        raise InputError(f"{where} is nested too deeply to be read") from None


def read_text(path: Path) -> str:
    """A file's UTF-8 text, without the byte order mark that some editors put first.

    InputError where it cannot be opened or is no text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: byte {error.start} is wrong") from None


def read_json(path: Path) -> Any:
    """A JSON file's value. InputError where the file cannot be opened, is no text or no JSON."""
    return parse_json(read_text(path), path)


def is_whole(value: object) -> bool:
    """A whole number; `True` is none, though Python counts it as one."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """A finite number that a double can hold."""
    try:
        return (is_whole(value) or isinstance(value, float)) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        return False


def is_text(value: object) -> bool:
    """A string that can be written: no half of a surrogate pair."""
    return isinstance(value, str) and (
        value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)
    )


class Fields:
    """The fields of one object; `finish` refuses those that nobody asked for.

    what: how messages call the object.
    """

    def __init__(self, what: str, data: object) -> None:
        if not isinstance(data, Mapping):
            raise InputError(f"{what} is {shown(data)}, an object with named fields is needed")
        self.what = f"{what} {data['name']}" if is_text(data.get("name")) else what
        self.data: Mapping[str, Any] = data
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = ...) -> Any:
        """The raw value of a field. InputError when it is missing and has no default."""
        self.asked.add(key)
        if key in self.data:
            return self.data[key]
        if default is ...:
            raise InputError(f"{self.what} lacks '{key}'. {nearest(key, map(str, self.data))}")
        return default

    def refuse(self, key: str, value: object, needed: str) -> InputError:
        """The error that says what a field is and what it should be."""
        return InputError(f"{self.what} has {key} = {shown(value)}, {needed} is needed")

    def number(self, key: str, default: Any = ...) -> float:
        """A finite number of at least 0."""
        value = self.get(key, default)
        if not is_number(value) or value < 0:
            raise self.refuse(key, value, "a number of at least 0")
        number: float = value
        return number

    def finite(self, key: str) -> float:
        """A finite number of either sign."""
        value = self.get(key)
        if not is_number(value):
            raise self.refuse(key, value, "a finite number")
        return float(value)

    def whole(
        self, key: str, default: Any = ..., *, least: int | None = None, most: int | None = None
    ) -> int:
        """A whole number from `least` to `most`; None leaves a side open."""
        value = self.get(key, default)
        low, high = (-math.inf if least is None else least), (math.inf if most is None else most)
        if not is_whole(value) or not low <= value <= high:
            bounds = f" of at least {least}" if least is not None else ""
            bounds += f" of at most {most}" if most is not None else ""
            raise self.refuse(key, value, f"a whole number{bounds}")
        number: int = value
        return number

    def count(self, key: str, default: Any = ..., *, most: int | None = None) -> int:
        """A whole number of at least 1."""
        value = self.get(key, default)
        if not is_whole(value) or value < 1:
            raise self.refuse(key, value, "a positive whole number")
        return self.whole(key, default, most=most)

    def text(self, key: str, default: Any = ..., *, least: int = 1) -> str:
        """A string of at least `least` characters."""
        value = self.get(key, default)
        if not is_text(value) or len(value) < least:
            raise self.refuse(key, value, "a text")
        words: str = value
        return words

    def one_of(self, key: str, known: Iterable[str]) -> str:
        """One of the known words."""
        value, words = self.get(key), tuple(map(str, known))
        if not is_text(value) or value not in words:
            hint = nearest(value if is_text(value) else "", words)
            raise InputError(f"{self.what} has {key} = {shown(value)}. {hint}")
        return str(value)

    def flag(self, key: str, default: Any = ...) -> bool:
        """`true` or `false`."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            raise self.refuse(key, value, "true or false")
        return value

    def mapping(self, key: str, default: Any = ...) -> Mapping[str, Any]:
        """An object with named fields."""
        value = self.get(key, default)
        if not isinstance(value, Mapping):
            raise self.refuse(key, value, "an object with named fields")
        return value

    def sequence(self, key: str) -> Sequence[Any]:
        """A list that is not empty."""
        value = self.get(key)
        if not isinstance(value, list | tuple) or not value:
            raise self.refuse(key, value, "a list")
        return value

    def items(self, key: str, default: Any = ...) -> Sequence[Any]:
        """A list, which may be empty."""
        value = self.get(key, default)
        if not isinstance(value, list | tuple):
            raise self.refuse(key, value, "a list")
        return value

    def wholes(self, key: str, default: Any = ...) -> tuple[int, ...]:
        """A list of whole numbers."""
        return tuple(self._each(key, self.items(key, default), is_whole, "a list of whole numbers"))

    def numbers(self, key: str, default: Any = ...) -> tuple[float, ...]:
        """A list of finite numbers."""
        values = self._each(key, self.items(key, default), is_number, "a list of finite numbers")
        return tuple(float(value) for value in values)

    def texts(self, key: str, default: Any = ...) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self._each(key, self.items(key, default), is_text, "a list of texts"))

    def named_wholes(self, key: str) -> dict[str, int]:
        """An object of whole numbers; empty where there is none."""
        values = self.mapping(key, {})
        self._each(key, values.values(), is_whole, "an object of whole numbers")
        return dict(values)

    def named_texts(self, key: str) -> dict[str, str]:
        """An object of texts; empty where there is none."""
        values = self.mapping(key, {})
        self._each(key, values.values(), is_text, "an object of texts")
        return dict(values)

    def _each(self, key: str, values: Iterable[Any], fits: Any, needed: str) -> Iterable[Any]:
        for value in values:
            if not fits(value):
                raise InputError(f"{self.what} has {shown(value)} in {key}, {needed} is needed")
        return values

    def finish(self) -> None:
        """Refuses fields that are not known."""
        for key in self.data:
            if key not in self.asked:
                raise InputError(f"{self.what} has no field '{key}'. {nearest(str(key), self.asked)}")
