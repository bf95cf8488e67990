"""Preference pairs: a prompt, the response that people (or a verifier) prefer, and another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rpeg.errors import InputError
from rpeg.job import sources
from rpeg.job.problems import show
from rpeg.job.records import field_of, messages_of, text_of

Messages = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Preference:
    """A row. index: its place among the rows, from 0.

    prompt, chosen, rejected: text or chat messages; a response that is a chat of its own begins with the prompt.
    margin: how much better the chosen one is at least (Llama 2, arXiv:2307.09288, eq. 2).
    """

    index: int
    prompt: str | Messages
    chosen: str | Messages
    rejected: str | Messages
    margin: float = 0.0


def read_preferences(
    path: str,
    prompt: str = "prompt",
    chosen: str = "chosen",
    rejected: str = "rejected",
    margin: str | None = None,
) -> tuple[Preference, ...]:
    """All pairs of a source, see `sources`. prompt may be missing where the responses are chats with the prompt in them.

    InputError names the source, the row and the field that is wrong.
    """
    found = []
    for index, (place, row) in enumerate(sources.rows(path)):
        both = [_text_or_chat(place, row, name) for name in (chosen, rejected)]
        own = all(isinstance(response, tuple) for response in both) and prompt not in row
        asked = () if own else _text_or_chat(place, row, prompt)
        apart = 0.0 if margin is None else _number(place, row, margin)
        found.append(Preference(index, asked, both[0], both[1], apart))
    if not found:
        raise InputError(f"{path} holds no pairs, at least one row is needed")
    return tuple(found)


def _text_or_chat(place: str, row: Mapping[str, Any], name: str) -> str | Messages:
    value = field_of(place, row, name)
    return messages_of(place, name, value) if isinstance(value, list | tuple) else text_of(place, name, value)


def _number(place: str, row: Mapping[str, Any], name: str) -> float:
    value = field_of(place, row, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(f"{place}: field '{name}' is {show(value)}, a number of at least 0 is needed")
    return float(value)
