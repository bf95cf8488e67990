"""Records: a prompt and an answer from each row of a source of data; see `sources` for what these may be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rpeg.errors import InputError, nearest
from rpeg.job import sources
from rpeg.job.problems import show

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Record:
    """A row. index: its place among the rows, from 0.

    prompt: text; of a chat the last message. messages: (role, content) of a prompt that is a chat, else empty.
    answer: text; numbers are spelt out, objects are JSON.
    """

    index: int
    prompt: str
    answer: str
    messages: tuple[tuple[str, str], ...] = ()


def read_records(path: str, prompt: str = "prompt", answer: str = "answer") -> tuple[Record, ...]:
    """All records of a source. prompt, answer: fields; a dot leads into an object, as in `reward_model.ground_truth`.

    InputError names the source, the row and the field that is wrong.
    """
    records = tuple(
        _record(index, place, row, prompt, answer) for index, (place, row) in enumerate(sources.rows(path))
    )
    if not records:
        raise InputError(f"{path} holds no records, at least one row is needed")
    return records


def field_of(place: str, row: Mapping[str, Any], name: str) -> Any:
    """The value of a field, by its own name or by a path of names with dots."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise InputError(f"{place}: has no field '{name}'. {nearest(name, row)}")
        value = value[part]
    return value


def text_of(place: str, name: str, value: Any) -> str:
    """The value of a field that must be text."""
    if not isinstance(value, str):
        raise InputError(f"{place}: field '{name}' is {show(value)}, text is needed")
    if _SURROGATE.search(value):
        raise InputError(f"{place}: field '{name}' is {show(value)}, a lone surrogate is no character")
    return value


def _record(index: int, place: str, row: Mapping[str, Any], prompt: str, answer: str) -> Record:
    asked = field_of(place, row, prompt)
    messages = messages_of(place, prompt, asked) if isinstance(asked, list | tuple) else ()
    text = messages[-1][1] if messages else text_of(place, prompt, asked)
    return Record(index, text, _answer(place, answer, field_of(place, row, answer)), messages)


def messages_of(place: str, name: str, value: Any) -> tuple[tuple[str, str], ...]:
    """The value of a field that is a list of chat messages."""
    found = []
    for message in value:
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise InputError(
                f"{place}: field '{name}' holds {show(message)}, a chat message has role and content"
            )
        found.append(
            (
                text_of(place, f"{name}.role", message["role"]),
                text_of(place, f"{name}.content", message["content"]),
            )
        )
    if not found:
        raise InputError(f"{place}: field '{name}' is an empty chat")
    return tuple(found)


def _answer(place: str, name: str, value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, Mapping):
        return json.dumps(value, default=str, ensure_ascii=False)
    return text_of(place, name, value)
