"""Reading published measurements: JSON lines, one record a line, in files or directories of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpeg.errors import InputError
from rpeg.fields import parse_json, read_json, read_text, shown


@dataclass(frozen=True)
class Located:
    """A record and where it stands, as ``file:line``."""

    where: str
    record: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Its own id, else its place."""
        return str(self.record.get("id") or self.where)

    @property
    def source(self) -> str:
        """Who published it, else its file."""
        return str(self.record.get("source") or self.where.rpartition(":")[0])


@dataclass(frozen=True)
class Reading:
    """What files hold. broken: one message for each line that holds no record."""

    records: tuple[Located, ...]
    broken: tuple[str, ...]


def read_records(paths: Iterable[Path]) -> Reading:
    """Every record of files (`.jsonl`: one a line; `.json`: one, or a list) and of the files in directories.

    Broken lines are reported, and the others read. InputError where a path does not exist or holds no such file.
    """
    records: list[Located] = []
    broken: list[str] = []
    for file in files(paths):
        for where, read in _entries(file):
            try:
                record = read()
            except InputError as error:
                broken.append(str(error))
                continue
            if isinstance(record, Mapping):
                records.append(Located(where, record))
            else:
                broken.append(f"{where} holds {shown(record)}, a JSON object is needed")
    return Reading(tuple(records), tuple(broken))


def files(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The files that paths name, each once. InputError where there is none."""
    found: dict[Path, Path] = {}
    for path in paths:
        for file in _files_of(path):
            found.setdefault(file.resolve(), file)
    return tuple(found.values())


def _files_of(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError(f"{path} does not exist: name a file of JSON lines, or a directory of such files")
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.suffix in (".jsonl", ".json") and file.is_file())
    if not found:
        raise InputError(f"{path} holds no .jsonl or .json file")
    return found


def _entries(file: Path) -> Iterator[tuple[str, Any]]:
    """(where, how to read it) of each record of a file."""
    if file.suffix == ".json":
        data = read_json(file)
        values = data if isinstance(data, list) else [data]
        yield from ((f"{file}:{number}", lambda value=value: value) for number, value in enumerate(values, 1))
        return
    for number, line in enumerate(read_text(file).split("\n"), 1):
        if line.strip():
            where = f"{file}:{number}"
            yield where, lambda line=line, where=where: parse_json(line, where)
