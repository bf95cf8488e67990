"""Bundled data files: entries `{value: …, source: …}`."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml

from rpeg.errors import InputError, nearest
from rpeg.fields import Fields

DATA = resources.files("rpeg.cluster") / "data"


@cache
def names(folder: str) -> tuple[str, ...]:
    """Names of the files of a folder, such as `kinds`."""
    files = (DATA / folder).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


def load(folder: str, name: str) -> dict[str, Any]:
    """What a file holds. InputError names the nearest when there is none of this name."""
    if name not in names(folder):
        raise InputError(f"there is no {folder.removesuffix('s')} '{name}'. {nearest(name, names(folder))}")
    data = yaml.safe_load((DATA / folder / f"{name}.yaml").read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return data


def sourced(what: str, key: str, entry: object) -> tuple[Any, str]:
    """A value and its source, of an entry `{value: …, source: …}`."""
    fields = Fields(f"{what}, {key}", entry)
    value, source = fields.get("value"), fields.text("source")
    fields.finish()
    return value, source
