"""The library of the core, loaded: from the package, from the cache, or compiled into the cache once."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from pathlib import Path

from rpeg.errors import InputError
from rpeg.job.cache import cache_directory
from rpeg.search.core import build


@cache
def library() -> ctypes.CDLL:
    """InputError where it is not built and no C compiler can build it."""
    loaded = ctypes.CDLL(str(_path()))
    pointer, number, real, code = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int
    problem = (pointer,) * 3  # shape, rows, site
    for name, result, arguments in (
        ("rpeg_work", pointer, (pointer, number)),
        ("rpeg_work_free", None, (pointer,)),
        ("rpeg_missing", ctypes.POINTER(number), (pointer,)),
        ("rpeg_rows", ctypes.POINTER(code), (pointer,)),
        ("rpeg_items", None, (pointer, pointer, pointer)),
        ("rpeg_objective", real, (real, real)),
        ("rpeg_step_seconds", code, (*problem, pointer, pointer, real, pointer)),
        ("rpeg_repeated", real, (*problem, pointer, number, pointer, number)),
        ("rpeg_move", code, (*problem, pointer, pointer, pointer, code)),
        ("rpeg_anneal", code, (*problem, *(pointer,) * 5)),
        ("rpeg_exhaust", code, (*problem, *(pointer,) * 4, number, number, pointer, number, pointer)),
    ):
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def why_missing() -> str:
    """Why the core cannot be had; empty where it can."""
    try:
        library()
    except InputError as error:
        return str(error)
    return ""


def _path() -> Path:
    for directory in (Path(build.__file__).parent, cache_directory()):
        path = directory / build.file_name()
        if path.exists():
            return path
    try:
        return build.build(cache_directory())
    except (OSError, subprocess.CalledProcessError) as error:
        words = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise InputError(
            "the compiled core of the search is not in this installation and could not be built: "
            f"{words[-1] if words else error}; install a C compiler (CC names it) or a binary wheel of rpeg"
        ) from error
