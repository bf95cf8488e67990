"""Reading the fields of a data object, each with a message that names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rpeg.errors import InputError, nearest


class Fields:
    """The fields of one object; `finish` refuses those that nobody asked for.

    what: how messages call the object.
    """

    def __init__(self, what: str, data: object) -> None:
        if not isinstance(data, Mapping):
            raise InputError(f"{what} is {data!r}, an object with named fields is needed")
        self.what = f"{what} {data['name']}" if "name" in data else what
        self.data: Mapping[str, Any] = data
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = ...) -> Any:
        """The raw value of a field. InputError when it is missing and has no default."""
        self.asked.add(key)
        if key in self.data:
            return self.data[key]
        if default is ...:
            raise InputError(f"{self.what} lacks '{key}'. {nearest(key, self.data)}")
        return default

    def number(self, key: str, default: Any = ...) -> float:
        """A finite number of at least 0."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise InputError(f"{self.what} has {key} = {value!r}, a number of at least 0 is needed")
        return value

    def count(self, key: str, default: Any = ...) -> int:
        """A whole number of at least 1."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{self.what} has {key} = {value!r}, a positive whole number is needed")
        return value

    def text(self, key: str, default: Any = ...) -> str:
        """A string that is not empty."""
        value = self.get(key, default)
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.what} has {key} = {value!r}, a text is needed")
        return value

    def mapping(self, key: str, default: Any = ...) -> Mapping[str, Any]:
        """An object with named fields."""
        value = self.get(key, default)
        if not isinstance(value, Mapping):
            raise InputError(f"{self.what} has {key} = {value!r}, an object with named fields is needed")
        return value

    def sequence(self, key: str) -> Sequence[Any]:
        """A list that is not empty."""
        value = self.get(key)
        if not isinstance(value, list | tuple) or not value:
            raise InputError(f"{self.what} has {key} = {value!r}, a list is needed")
        return value

    def finish(self) -> None:
        """Refuses fields that are not known."""
        for key in self.data:
            if key not in self.asked:
                raise InputError(f"{self.what} has no field '{key}'. {nearest(str(key), self.asked)}")
