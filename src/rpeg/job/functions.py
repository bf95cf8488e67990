"""`python:package.module:function` in a job file: found without running it, or imported."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rpeg.errors import InputError, nearest

PREFIX = "python:"


def check_function(reference: str, import_from: str | Path = ".") -> None:
    """InputError unless the module can be found and defines the function. Nothing of the module runs.

    Packages above the module are imported, as Python must to find it.
    """
    module, function = _split(reference)
    with _importable(import_from):
        try:
            spec = importlib.util.find_spec(module)
        except (Exception, SystemExit):  # noqa: BLE001  (whatever the packages above it raise)
            spec = None
    if spec is None:
        raise InputError(
            f"{reference}: there is no module '{module}' on the import path or in {os.path.realpath(import_from)}"
        )
    if spec.origin is None or not spec.origin.endswith(".py"):
        return
    names = _defined(Path(spec.origin), reference)
    if function not in names and "*" not in names:
        raise InputError(f"{reference}: {spec.origin} defines no '{function}'. {nearest(function, names)}")


def import_function(reference: str, import_from: str | Path = ".") -> Callable[..., Any]:
    """The function itself. InputError when it cannot be imported or called."""
    module, name = _split(reference)
    with _importable(import_from):
        try:
            function = getattr(importlib.import_module(module), name)
        except (Exception, SystemExit) as error:
            raise InputError(f"{reference}: cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(function):
        raise InputError(f"{reference}: is a {type(function).__name__}, a function is needed")
    return function  # type: ignore[no-any-return]


def _split(reference: str) -> tuple[str, str]:
    module, _, function = reference.removeprefix(PREFIX).partition(":")
    if not all(part.isidentifier() for part in module.split(".")) or not function.isidentifier():
        raise InputError(f"{reference}: must be python:package.module:function")
    return module, function


@contextmanager
def _importable(directory: str | Path) -> Iterator[None]:
    """With a directory first on the import path."""
    entry = os.path.realpath(os.path.expanduser(directory))
    sys.path.insert(0, entry)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(entry)


def _defined(file: Path, reference: str) -> set[str]:
    """Names that the top level of a module binds."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise InputError(f"{reference}: {file} is not valid Python: {error}") from None
    return set(_bound(tree))


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that a statement binds, without looking into functions and classes."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif not isinstance(node, ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)
