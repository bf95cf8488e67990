"""Named models: shapes of public models as data, found by the spellings that people use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rpeg.architecture.huggingface import from_config
from rpeg.architecture.model import Architecture
from rpeg.errors import InputError, nearest

_DATA = Path(__file__).with_name("data")

# Words that tell versions of one shape apart: how it was tuned, its number format, its date.
_TUNING = (
    r"instruct|it|chat|base|pt|hf|sft|dpo|grpo|rl|zero|thinking|preview|meta|nvidia|fp8|bf16|fp16|nvfp4|mxfp4|fp4|"
    r"int4|int8|awq|gptq|gguf|w\d+a\d+|(0[1-9]|1[0-2])\d\d|2[3-6](0[1-9]|1[0-2])"
)
# From the most exact reading of a name to the loosest: words that each leaves out. A release seldom changes a shape.
_LEFT_OUT = (re.compile(r"(?!)"), re.compile(_TUNING), re.compile(_TUNING + r"|v0\.\d"))


def names() -> tuple[str, ...]:
    """All named models, sorted."""
    return tuple(sorted(_entries()))


def named(text: str) -> Architecture:
    """The architecture of a public model, by its name as people write it.

    `meta-llama/Llama-3.1-8B-Instruct`, `Llama 3.1 8B` and `llama3.1-8b` are one shape. InputError on a name that is
    not known tells the nearest.
    """
    found = find(text)
    if found is None:
        short = text.rsplit("/", 1)[-1]
        close = nearest(short.lower(), [name.lower() for name in names()])
        raise InputError(
            f"model '{text}' is not known. {_as_written(close)} Or give the directory of its config.json"
        )
    return found


def find(text: str) -> Architecture | None:
    """`named`, with None for a name that is not known."""
    spellings = _spellings()
    for spelling in _readings(text):
        if spelling in spellings:
            return _architecture(spellings[spelling])
    return None


def source(name: str) -> str:
    """Where the shape of a model comes from. name: as `names` has it."""
    return str(_entries()[name]["source"])


@cache
def _architecture(name: str) -> Architecture:
    return replace(from_config(_entries()[name]["config"], name), name=name)


@cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    """Every entry of the data files by its name."""
    entries: dict[str, Mapping[str, Any]] = {}
    for path in sorted(_DATA.glob("*.yaml")):
        entries |= yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 (safe either way)
    return entries


# The C parser is an optional part of PyYAML: 7 times as fast, same documents.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def _spellings() -> Mapping[str, str]:
    """Reduced spelling → name; where two models share one, the more exact reading has it."""
    found: dict[str, str] = {}
    for left_out in _LEFT_OUT:
        for name in _entries():
            for text in _written(name):
                found.setdefault(_reduced(text, left_out), name)
    return found


def _written(name: str) -> list[str]:
    return [name, *_entries()[name].get("also", ())]


def _readings(text: str) -> list[str]:
    """The reduced spellings that a text may stand for, the most exact first, without remarks in brackets."""
    bare = re.sub(r"\(.*?\)|\b\d+-nodes?\b", " ", text).strip()
    return [_reduced(part, left_out) for left_out in _LEFT_OUT for part in (bare.rsplit("/", 1)[-1], bare)]


def _reduced(text: str, left_out: re.Pattern[str] = _LEFT_OUT[0]) -> str:
    """The words of a name run together, in lower case, without some."""
    words = re.split(r"[\s_\-/]+", text.lower())
    return "".join(word for word in words if not left_out.fullmatch(word))


def _as_written(message: str) -> str:
    """A message with names in their own spelling instead of in lower case."""
    own = {name.lower(): name for name in names()}
    return re.sub(r"'([^']*)'", lambda match: f"'{own.get(match[1], match[1])}'", message)
