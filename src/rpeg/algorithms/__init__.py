"""Algorithms, one file each, found by its name.

A module of this package is an algorithm if it has

- `Hyper`: a frozen dataclass of hyperparameters, all with defaults, that checks itself;
- `graph(hyper) -> Graph`: one step of training, with the ops below as the names on its stages;
- `OPS`: the numeric functions by name. A column op takes `(columns, mask, hyper)` and returns the columns
  that it adds or replaces; a loss op takes the same and returns a `loss.TokenLoss`. Columns are padded (n, T)
  a token or (n,) a sample, the mask is (n, T) bool. They use tensor methods only, so that nothing here
  imports torch.

Besides the data on the stage's edges a column op finds `staleness` (n, T), publications between the weights that
sampled a token and those that the step begins with, and what `shaping.carried` names, () each: what it returns under
that name is carried to the next step. The column `loss_mask` says which tokens losses are of, and what their
denominators count.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from rpeg.errors import InputError, nearest

PARTS = ("Hyper", "graph", "OPS")


def names() -> tuple[str, ...]:
    """The names of all algorithms, sorted."""
    return tuple(sorted(_algorithms()))


def load(name: str) -> ModuleType:
    """The module of an algorithm. InputError names the nearest known one."""
    if name not in _algorithms():
        raise InputError(f"algorithm '{name}' is unknown. {nearest(name, names())}")
    return _algorithms()[name]


@cache
def _algorithms() -> dict[str, ModuleType]:
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    return {
        module.__name__.rpartition(".")[2]: module
        for module in modules
        if all(hasattr(module, part) for part in PARTS)
    }
