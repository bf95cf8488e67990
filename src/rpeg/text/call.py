"""Values that are named with parameters, such as a transform: ``async{staleness=1,stage=generate}``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rpeg.errors import GraphError

_CALL = re.compile(r"^(?P<name>[A-Za-z_][\w-]*)(?:\{(?P<arguments>[^{}]*)\})?$")


def call_text(name: str, arguments: Mapping[str, object]) -> str:
    """``name{key=value,…}``, without braces when there are no arguments."""
    inner = ",".join(f"{key}={value}" for key, value in arguments.items())
    return f"{name}{{{inner}}}" if inner else name


def parse_call(source: str) -> tuple[str, dict[str, str]]:
    """The name and its arguments as text. Raises GraphError where it cannot be read."""
    match = _CALL.match(source.strip())
    if match is None:
        raise GraphError(f"cannot read '{source}': expected NAME or NAME{{key=value,…}}")
    arguments: dict[str, str] = {}
    for piece in filter(None, (match["arguments"] or "").split(",")):
        key, equals, value = piece.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise GraphError(f"cannot read '{piece}' in '{source}': expected key=value")
        arguments[key.strip()] = value.strip()
    return match["name"], arguments
