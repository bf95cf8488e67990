"""Generation: the protocol (`protocol`), and one file for each backend.

A backend is a module of this package with `BACKEND`, a class that fulfils `GenerationEngine`; its file's name
is its name in a plan, where `torch` stands for `slots`. Nothing else needs to know it.
"""

from __future__ import annotations

import importlib
import pkgutil

import torch.distributed as dist

from rpeg.backends.generation.apart import EngineApart
from rpeg.backends.generation.protocol import Backend, GenerationEngine, Setup
from rpeg.errors import InputError, nearest

_ALIASES = {"torch": "slots"}  # what runs over the torch modules that other stages use


def backend(name: str) -> Backend:
    """The engine class of this name in a plan. InputError names the nearest known."""
    name = _ALIASES.get(name, name)
    known = [module.name for module in pkgutil.iter_modules(__path__)]
    if name in known:
        found: Backend | None = _class(name)
        if found is not None:
            return found
    backends = [module for module in known if _class(module) is not None]
    raise InputError(f"unknown generation backend '{name}'. {nearest(name, backends)}")


def make_engine(name: str, setup: Setup) -> GenerationEngine:
    """The engine of this name in a plan; in a process of its own where it cannot share that of a process group."""
    kind = backend(name)
    grouped = dist.is_initialized() and dist.get_world_size() > 1
    if grouped and getattr(kind, "SHARES_NO_GROUP", False):
        return EngineApart.made(name, setup)
    return kind.made(setup)


def _class(module: str) -> Backend | None:
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), "BACKEND", None)
    except ImportError:  # a backend whose library is not installed is not on offer
        return None
