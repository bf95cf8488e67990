"""Files that are there after a crash, and what is said where the disk has no room for them."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def sync(path: Path) -> None:
    """Returns when a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, text: str) -> None:
    """Writes a small file and waits until the disk has it."""
    path.write_text(text, encoding="utf-8")
    sync(path)


@contextmanager
def room_for(directory: Path, size_bytes: int) -> Iterator[None]:
    """For as long as `size_bytes` are written into `directory`, which exists: OSError says how many bytes lack where it
    has not so many, before anything is written or when it turns out."""
    free = shutil.disk_usage(directory).free
    if free < size_bytes:
        raise _full(directory, size_bytes, free)
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise _full(directory, size_bytes, shutil.disk_usage(directory).free) from error
        raise


def disk_trouble(error: OSError) -> str:
    """Which file it is about, what is wrong, and how much room there is."""
    text = f"{error.filename}: {error.strerror}"
    if error.errno in FULL and "bytes are free" not in text and error.filename is not None:
        at = Path(error.filename)
        free = shutil.disk_usage(at if at.exists() else at.parent).free
        text += f", {free:,} bytes are free. Make room"
    return text


def _full(directory: Path, size_bytes: int, free_bytes: int) -> OSError:
    lacking = max(0, size_bytes - free_bytes)
    return OSError(
        errno.ENOSPC,
        f"{size_bytes:,} bytes are to be written and {free_bytes:,} are free, {lacking:,} are lacking",
        str(directory),
    )
