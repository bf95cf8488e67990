"""Writing what a trainer has copied, in a thread beside the training that goes on."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rpeg.backends.training.checkpoint import Snapshot
from rpeg.errors import RunError


class Saver:
    """Writes snapshots one after another; a mark, an empty file, says that one is on the disk.

    What fails is raised by the next call: a run whose checkpoints cannot be written does not go on as if they were.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._writing: list[Future[None]] = []

    def begin(self) -> None:
        """Waits until everything earlier is written, so that one step's copies are held at a time."""
        writing, self._writing = self._writing, []
        for future in writing:
            future.result()

    def save(self, snapshot: Snapshot, directory: Path, mark: Path) -> None:
        """Returns at once."""
        self._writing.append(self._thread.submit(_write, snapshot, directory, mark))

    def check(self) -> None:
        """RunError where something could not be written."""
        for future in self._writing:
            if future.done():
                future.result()

    def close(self) -> None:
        """Waits for what is being written; what fails is no longer of interest."""
        self._thread.shutdown()


def _write(snapshot: Snapshot, directory: Path, mark: Path) -> None:
    try:
        snapshot.write(directory)
        mark.touch()
    except OSError as error:
        raise RunError(
            f"cannot write {directory}: {error.strerror}. Make room; older checkpoints are untouched"
        ) from error
