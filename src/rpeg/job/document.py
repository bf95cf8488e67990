"""YAML text as plain data, with the line of every key. Twice the same key is refused: YAML would keep the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from rpeg.errors import JobError
from rpeg.job.problems import Problem, show, stop

Path = tuple[str, ...]

MOST_NODES = 10_000


@dataclass(frozen=True)
class Document:
    """A file's data (`data`: nested dicts and lists) and `lines`: key path → line, from 1."""

    file: str
    data: dict[str, Any]
    lines: Mapping[Path, int]


def parse(text: str, file: str) -> Document:
    """Raises JobError naming the place: bad YAML, an empty file, no mapping at the top, a key twice or not text."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _check_size(node, file)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise JobError(f"{file}{_place(error)}") from None
    if node is None or data is None:
        raise JobError(f"{file}: the file is empty. `rpeg init` writes a commented job file to start from.")
    if not isinstance(node, yaml.MappingNode):
        raise JobError(f"{file}: holds {show(data)}, not keys with values. `rpeg init` writes an example.")
    keys = list(_keys(node, (), set()))
    problems = [*_repeated(keys), *_not_text(keys)]
    if problems:
        raise stop(file, problems)
    return Document(file, data, {path: line for path, line, _ in keys})


def _check_size(node: yaml.Node | None, file: str) -> None:
    """JobError where aliases multiply a few lines into more than any job holds ("billion laughs")."""
    size = _expanded(node, {}) if node is not None else 0
    if size > MOST_NODES:
        raise JobError(
            f"{file}: its aliases (*name) expand to {size:.3g} values, {MOST_NODES} are allowed. Write values out."
        )


def _expanded(node: yaml.Node, known: dict[int, int]) -> int:
    """Nodes at and below a node, each counted as often as aliases repeat it; inside itself it counts as one."""
    if id(node) not in known:
        known[id(node)] = 1
        pairs = node.value if isinstance(node, yaml.CollectionNode) else ()
        children = [c for pair in pairs for c in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(_expanded(child, known) for child in children)
    return known[id(node)]


def _place(error: Exception) -> str:
    """Line and column where YAML gave up, and its reason in one line."""
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
    return f"{where}: is not valid YAML: {reason}. Check indentation, colons and quotes there."


def _keys(node: yaml.Node, path: Path, seen: set[int]) -> Iterator[tuple[Path, int, str]]:
    """(path, line, YAML tag) of every key below a node, repeated ones too. Aliases are followed once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            yield here, key.start_mark.line + 1, key.tag
            yield from _keys(value, here, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _keys(value, (*path, str(index)), seen)


def _repeated(keys: list[tuple[Path, int, str]]) -> Iterator[Problem]:
    first: dict[Path, int] = {}
    for path, line, _ in keys:
        if path in first and path[-1] != "<<":
            text = f"the key is given twice, on lines {first[path]} and {line}. Keep one of them."
            yield Problem(path, text, line)
        first.setdefault(path, line)


def _not_text(keys: list[tuple[Path, int, str]]) -> Iterator[Problem]:
    for path, line, tag in keys:
        if tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
            yield Problem(path, "a key must be text. Put it in quotes if it is meant so.", line)
