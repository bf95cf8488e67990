"""Generation: the protocol (`protocol`), and one file for each backend.

A backend is a module of this package with `BACKEND`, a class that fulfils `GenerationEngine`; its file's name
is its name in a plan, where `torch` stands for `slots`. Nothing else needs to know it.
"""

from __future__ import annotations

import importlib
import pkgutil

from rpeg.backends.generation.protocol import GenerationEngine
from rpeg.errors import InputError, nearest

_ALIASES = {"torch": "slots"}  # what runs over the torch modules that other stages use


def backend(name: str) -> type[GenerationEngine]:
    """The engine class of this name in a plan. InputError names the nearest known."""
    name = _ALIASES.get(name, name)
    known = [module.name for module in pkgutil.iter_modules(__path__)]
    if name in known:
        found: type[GenerationEngine] | None = _class(name)
        if found is not None:
            return found
    backends = [module for module in known if _class(module) is not None]
    raise InputError(f"unknown generation backend '{name}'. {nearest(name, backends)}")


def _class(module: str) -> type[GenerationEngine] | None:
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), "BACKEND", None)
    except ImportError:  # a backend whose library is not installed is not on offer
        return None
