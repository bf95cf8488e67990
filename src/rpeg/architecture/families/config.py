"""Reading a Hugging Face config: each field that is asked for is noted, so that what nobody asked for shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpeg.errors import InputError, nearest
from rpeg.fields import shown


class Config:
    """The fields of one config; several keys are spellings of one field, the first present one counts.

    name: how messages call the model.
    """

    def __init__(self, data: Mapping[str, Any], name: str) -> None:
        self.data = data
        self.name = name
        self.asked: set[str] = set()

    def get(self, *keys: str) -> Any:
        """The raw value of a field, None where it is absent."""
        self.asked.update(keys)
        return next((self.data[key] for key in keys if self.data.get(key) is not None), None)

    def refuse(self, key: str, needed: str) -> InputError:
        """The error that says what a field is and what it should be."""
        return InputError(
            f"the config of {self.name} has {key} = {shown(self.data.get(key))}, {needed} is needed"
        )

    def count(self, *keys: str, default: int | None = None) -> int:
        """A positive whole number. InputError where it is absent without a default, or something else."""
        value = self.get(*keys)
        key = next((key for key in keys if self.data.get(key) is not None), keys[0])
        if value is None and default is not None:
            return default
        if value is None and key not in self.data:
            raise InputError(f"the config of {self.name} lacks '{key}'. {nearest(key, map(str, self.data))}")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.refuse(key, "a positive whole number")
        return value

    def maybe(self, *keys: str) -> int | None:
        """A positive whole number; None where it is absent or 0, which means `not there` throughout."""
        value = self.get(*keys)
        return None if value is None or (value == 0 and value is not False) else self.count(*keys)

    def zero_or_more(self, key: str) -> int:
        """A whole number of at least 0; 0 where it is absent."""
        return self.maybe(key) or 0

    def flag(self, key: str, default: bool = False) -> bool:
        """`true` or `false`."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def text(self, *keys: str, default: str) -> str:
        """A string."""
        value = self.get(*keys)
        return default if value is None else str(value)

    def items(self, key: str, length: int | None = None) -> list[Any] | None:
        """A list, of one entry a layer where `length` is given; None where it is absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise self.refuse(key, "a list")
        if length is not None and len(value) != length:
            raise InputError(f"the config of {self.name} has {len(value)} {key} for {length} layers")
        return list(value)
