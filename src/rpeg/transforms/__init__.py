"""Changes of a graph's structure: one file each.

`parse("async{stage=generate,staleness=1,freshness=exact}")` gives the transform that prints so. A file dropped into this
package is found by itself.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache

from rpeg.errors import GraphError, nearest
from rpeg.text import parse_call
from rpeg.transforms.base import Changes, Transform

__all__ = ["Changes", "Transform", "parse", "parse_all", "transforms"]


@cache
def transforms() -> Mapping[str, type[Transform]]:
    """Every transform by its name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return {kind.name: kind for kind in sorted(Transform.__subclasses__(), key=lambda kind: kind.name)}


def parse(source: str) -> Transform:
    """The transform that prints as `source`. Raises GraphError for an unknown name or argument."""
    name, arguments = parse_call(source)
    try:
        kind = transforms()[name]
    except KeyError:
        raise GraphError(f"there is no transform '{name}'. {nearest(name, transforms())}") from None
    return kind.from_arguments(arguments)


def parse_all(sources: Iterable[str]) -> tuple[Transform, ...]:
    """The transforms that print so, such as a plan's `applied`. Raises GraphError naming the first that is none."""
    return tuple(map(parse, sources))
