"""One run at a time writes into a directory."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rpeg.errors import InputError


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the directory for as long as the block runs. InputError where another process holds it.

    The lock is the process's: it is free again whatever the process dies of.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(
                f"another run is writing into {directory}; wait for it, or set another output"
            ) from None
        yield
