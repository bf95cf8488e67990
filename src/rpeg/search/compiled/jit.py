"""`compiled`: numba's compiler where it is installed, cached on disk; else the function itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit
except ImportError:  # pragma: no cover - numba is optional
    njit = None


def compiled(function: F) -> F:
    """Compiled at its first call for the types of its arguments."""
    if njit is None:
        return function
    return njit(cache=True, boundscheck=False, fastmath=False)(function)  # type: ignore[no-any-return]


IS_COMPILED = njit is not None
