"""Data files: JSON Lines, one object a line, a prompt and an answer in each."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpeg.errors import InputError, nearest
from rpeg.job import bundled
from rpeg.job.problems import show

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Record:
    """A line of a data file. index: its place among the records of the file, from 0."""

    index: int
    prompt: str
    answer: str


def data_path(path: str) -> Path:
    """The file of a `bundled:PATH` or of a path. InputError when there is none."""
    if path.startswith(bundled.PREFIX):
        return bundled.data_file(path.removeprefix(bundled.PREFIX))
    file = Path(os.path.expanduser(path))
    if os.path.isdir(file):
        raise InputError(f"{file} is a directory, a JSONL file is needed")
    if os.path.exists(file) and not os.path.isfile(file):
        raise InputError(f"{file} is a device or a pipe, a regular file is needed")
    if not os.path.isfile(file):
        beside = (p.name for p in file.parent.glob("*.jsonl")) if os.path.isdir(file.parent) else ()
        hint = nearest(file.name, beside)
        raise InputError(
            f"there is no file {file}. {hint if 'mean' in hint else 'Paths start at the job file.'}"
        )
    return file


def read_records(path: str, prompt: str = "prompt", answer: str = "answer") -> tuple[Record, ...]:
    """All records of a file; blank lines are passed over. Answers that are numbers become text.

    InputError names the file, the line and the field that is wrong.
    """
    file = data_path(path)
    try:
        with file.open(encoding="utf-8-sig") as lines:
            rows = list(_rows(file, lines))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as text: {error}") from None
    if not rows:
        raise InputError(f"{file} holds no records, at least one line is needed")
    return tuple(
        Record(
            index, _field(file, line, row, prompt, (str,)), _field(file, line, row, answer, (str, int, float))
        )
        for index, (line, row) in enumerate(rows)
    )


def _rows(file: Path, lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_not_json)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{file}:{number}: is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{file}:{number}: holds {show(row)}, a JSON object with the fields is needed")
        yield number, row


def _not_json(constant: str) -> None:
    """NaN and Infinity, which Python's reader takes."""
    raise ValueError(f"{constant} is no JSON number")


def _field(file: Path, line: int, row: dict[str, Any], name: str, kinds: tuple[type, ...]) -> str:
    if name not in row:
        raise InputError(f"{file}:{line}: has no field '{name}'. {nearest(name, row)}")
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise InputError(f"{file}:{line}: field '{name}' is {show(value)}, text is needed")
    if _SURROGATE.search(str(value)):
        raise InputError(f"{file}:{line}: field '{name}' is {show(value)}, a lone surrogate is no character")
    return str(value)
