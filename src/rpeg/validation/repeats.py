"""Measurements that several records state, in one file or in two: each counts once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from rpeg.errors import InputError
from rpeg.validation.form import check_form
from rpeg.validation.kinds import kind_of_record
from rpeg.validation.outcome import Kind

Record = Mapping[str, Any]

# Kinds whose readers say what two records of one measurement share (`content`).
_TOLD_APART: tuple[Kind, ...] = ("rl", "weightsync")


def repeated(records: Sequence[Record]) -> frozenset[int]:
    """Positions of records whose measurement another one states with more fields, or as many and earlier."""
    contents: dict[Kind, Callable[[Record], Hashable | None]] = {
        kind: importlib.import_module(f"rpeg.validation.{kind}").content for kind in _TOLD_APART
    }
    kept: dict[Hashable, int] = {}
    out: set[int] = set()
    for position, record in enumerate(records):
        kind = kind_of_record(record)
        content = _content(record, kind, contents[kind]) if kind is not None and kind in contents else None
        if content is None:
            continue
        other = kept.setdefault(content, position)
        if other != position:
            fuller = _fields(record) > _fields(records[other])
            out.add(other if fuller else position)
            kept[content] = position if fuller else other
    return frozenset(out)


def _content(record: Record, kind: Kind, content: Callable[[Record], Hashable | None]) -> Hashable | None:
    """What the reader says; None for records of a wrong form, which it will refuse."""
    try:
        check_form(record, kind)
    except InputError:
        return None
    return content(record)


def _fields(value: object) -> int:
    """How many values a record gives, at any depth."""
    if isinstance(value, Mapping):
        return sum(_fields(each) for each in value.values())
    return 0 if value is None else 1
