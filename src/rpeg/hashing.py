"""`kept_hash`: frozen values that are keys of caches asked often work out their hash once."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

Value = TypeVar("Value")

_KEPT = "_hash"


def kept_hash(cls: type[Value]) -> type[Value]:
    """Class decorator, above `@dataclass(frozen=True)`: the hash of the fields, kept at the value.

    It does not travel to other processes, which salt the hashes of texts otherwise; nor does anything but the fields.
    """
    names = tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    def hash_of(self: Any) -> int:
        kept: int | None = self.__dict__.get(_KEPT)
        if kept is None:
            kept = self.__dict__[_KEPT] = hash(tuple(getattr(self, name) for name in names))
        return kept

    def state(self: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in names}

    cls.__hash__ = hash_of  # type: ignore[method-assign]
    cls.__getstate__ = state  # type: ignore[method-assign]
    return cls
