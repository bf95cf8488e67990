"""Where rows of data come from, by how the job file spells it.

`FILE.jsonl` (or any other text file: JSON Lines), `FILE.parquet` (needs pyarrow), the directory of a dataset that
`datasets` has saved, `hf:ORG/NAME` (or `hf:ORG/NAME/CONFIG`) from its cache or the hub; `#SPLIT` behind one of the last
two names a split (default: train). `reasoning-gym:TASK?size=500&seed=0&…` is drawn from that package.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from rpeg.errors import InputError, nearest
from rpeg.job import bundled
from rpeg.job.problems import show

HUB, GYM = "hf:", "reasoning-gym:"
PREFIXES = (bundled.PREFIX, HUB, GYM)
DEFAULT_GYM_SIZE = 1000

Row = dict[str, Any]


def rows(path: str) -> Iterator[tuple[str, Row]]:
    """(place, as messages call it; row) of all rows of a source. InputError names what cannot be read."""
    if path.startswith(GYM):
        return _gym(path.removeprefix(GYM))
    name, _, split = path.partition("#")
    if path.startswith(HUB):
        return _hub(name.removeprefix(HUB), split or "train")
    directory = Path(os.path.expanduser(name))
    if not path.startswith(bundled.PREFIX) and os.path.isdir(directory):
        return _saved(directory, split)
    file = data_path(path)
    return _parquet(file) if file.suffix == ".parquet" else _lines(file)


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


def _lines(file: Path) -> Iterator[tuple[str, Row]]:
    """JSON Lines; blank ones are passed over."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file}:{number}", _object(line, f"{file}:{number}")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read as text: {error}") from None


def _object(line: str, place: str) -> Row:
    try:
        row = json.loads(line, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise InputError(f"{place}: holds {show(row)}, a JSON object with the fields is needed")
    return row


def _not_json(constant: str) -> None:
    """NaN and Infinity, which Python's reader takes."""
    raise ValueError(f"{constant} is no JSON number")


def _parquet(file: Path) -> Iterator[tuple[str, Row]]:
    parquet = _needs("pyarrow.parquet", "data")
    try:
        table = parquet.read_table(file)
    except (OSError, ValueError) as error:  # pyarrow's own errors are of these
        raise InputError(f"{file} cannot be read as Parquet: {error}") from None
    return _placed(str(file), table.to_pylist())


def _saved(directory: Path, split: str) -> Iterator[tuple[str, Row]]:
    """What `Dataset.save_to_disk` or `DatasetDict.save_to_disk` has written."""
    if not any(os.path.isfile(directory / name) for name in ("dataset_dict.json", "state.json")):
        raise InputError(
            f"{directory} is a directory, and no dataset was saved there: give a JSONL or Parquet file, or what "
            "`save_to_disk` of `datasets` has written"
        )
    datasets = _needs("datasets", "data")
    try:
        found = datasets.load_from_disk(str(directory))
    except (OSError, ValueError) as error:
        raise InputError(f"{directory} cannot be read as a saved dataset: {error}") from None
    if hasattr(found, "keys"):
        split = split or "train"
        if split not in found:
            raise InputError(f"{directory} has no split '{split}'. {nearest(split, found.keys())}")
        found = found[split]
    elif split:
        raise InputError(f"{directory} is a dataset without splits: leave out #{split}")
    return _placed(str(directory), found)


def _hub(name: str, split: str) -> Iterator[tuple[str, Row]]:
    """From the cache of `datasets`, else the hub."""
    owner, _, rest = name.partition("/")
    dataset, _, config = rest.partition("/")
    if not owner or not dataset:
        raise InputError(
            f"{HUB}{name}: must be {HUB}ORG/NAME, {HUB}ORG/NAME#SPLIT or {HUB}ORG/NAME/CONFIG#SPLIT"
        )
    datasets = _needs("datasets", "data")
    try:
        found = datasets.load_dataset(f"{owner}/{dataset}", config or None, split=split)
    except Exception as error:  # noqa: BLE001  (no network, no such dataset or split: all end here)
        raise InputError(
            f"dataset {owner}/{dataset} ({split}) is not in the cache, and cannot be fetched: {_first_line(error)}. "
            "Check its name and the network, or save it with `save_to_disk` and give the directory"
        ) from None
    return _placed(f"{HUB}{name}#{split}", found)


def _gym(text: str) -> Iterator[tuple[str, Row]]:
    """prompt: the question. answer: the whole entry, which the task's own verifier reads."""
    task, _, query = text.partition("?")
    gym = _needs("reasoning_gym", "rewards")
    options: Row = {"size": DEFAULT_GYM_SIZE, "seed": 0}
    try:
        options |= {key: _number(value) for key, value in parse_qsl(query, strict_parsing=bool(query))}
        found = gym.create_dataset(task, **options)
        entries = [found[index] for index in range(len(found))]
    except Exception as error:  # noqa: BLE001  (whatever a task raises on options that it does not know)
        raise InputError(f"{GYM}{text}: cannot be drawn: {_first_line(error)}") from None
    return _placed(f"{GYM}{task}", ({"prompt": entry["question"], "answer": entry} for entry in entries))


def _number(value: str) -> object:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _placed(source: str, found: Iterable[Any]) -> Iterator[tuple[str, Row]]:
    return ((f"{source}:{number}", dict(row)) for number, row in enumerate(found, start=1))


def _needs(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "") != module.partition(".")[0]:
            raise
        package = error.name.replace("_", "-") if error.name else module
        raise InputError(
            f"this needs {package}, which is not installed: pip install 'rpeg[{extra}]'"
        ) from None


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
