"""What RPEG brings along: small models (directories with a config.json) and data files, named `bundled:PATH`."""

from __future__ import annotations

from pathlib import Path

import rpeg
from rpeg.errors import InputError, nearest

ASSETS = Path(rpeg.__file__).parent / "assets"
PREFIX = "bundled:"


def models() -> tuple[str, ...]:
    """Names of the bundled models."""
    return tuple(sorted(_name(config.parent) for config in ASSETS.rglob("config.json")))


def data_files() -> tuple[str, ...]:
    """Names of the bundled data files."""
    return tuple(sorted(_name(file) for file in ASSETS.rglob("*.jsonl")))


def model(name: str) -> Path:
    """The directory of a bundled model. InputError names the nearest when there is none of this name."""
    return _find(name, models(), "model")


def data_file(name: str) -> Path:
    """A bundled data file. InputError names the nearest when there is none of this name."""
    return _find(name, data_files(), "data file")


def _find(name: str, known: tuple[str, ...], what: str) -> Path:
    if name not in known:
        raise InputError(f"there is no bundled {what} '{name}'. {nearest(name, known)}")
    return ASSETS / name


def _name(path: Path) -> str:
    return path.relative_to(ASSETS).as_posix()
