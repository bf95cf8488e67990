"""The library of the core, loaded: from the package, from the cache, or compiled into the cache once."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from rpeg.errors import InputError
from rpeg.job.cache import cache_directory
from rpeg.search.core import build


@cache
def library() -> ctypes.CDLL:
    """InputError where it is not built and no C compiler can build it."""
    loaded = _loaded()
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


def _loaded() -> ctypes.CDLL:
    for directory in (Path(build.__file__).parent, cache_directory()):
        path = directory / build.file_name()
        if path.exists():
            try:
                return ctypes.CDLL(str(path))
            except OSError:  # cut short, or of another system: it is built anew
                continue
    return ctypes.CDLL(str(_built()))


def _built() -> Path:
    """In the cache, or where nothing can be written there in a directory of this process."""
    try:
        try:
            return build.build(cache_directory())
        except (PermissionError, FileExistsError, NotADirectoryError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and cache_directory().is_dir():
                raise  # it is the compiler that is not found
            return build.build(Path(tempfile.mkdtemp(prefix="rpeg-")))
    except (OSError, subprocess.CalledProcessError) as error:
        raise InputError(
            f"the compiled core of the search is not in this installation and could not be built: {_words(error)}; "
            "install a C compiler (CC names it) or a binary wheel of rpeg"
        ) from error


def _words(error: OSError | subprocess.CalledProcessError) -> str:
    if isinstance(error, OSError):
        return str(error)
    said = (error.stderr or "").strip().splitlines()
    return f"{error.cmd[0]} ended with exit status {error.returncode}" + (
        f" and said: {said[-1]}" if said else ""
    )
