"""`Beside`: work done in a process of its own while this one goes on, where the system forks; else when asked for."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

T = TypeVar("T")

WATCH_SECONDS = 1.0


class Beside(Generic[T]):
    """Begins at once. work: pure, so that it can be done here instead; its answer is pickled from child to parent."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._answer: Connection | None = None
        forks = "fork" in multiprocessing.get_all_start_methods()
        if forks and not multiprocessing.current_process().daemon:  # those must have no children
            context = multiprocessing.get_context("fork")
            self._answer, there = context.Pipe(duplex=False)
            context.Process(target=_tell, args=(there, work, os.getpid()), daemon=True).start()
            there.close()

    def result(self) -> T:
        """The answer. Done here where the child could not: then it is here too that it raises."""
        if self._answer is not None:
            with contextlib.suppress(EOFError):
                return self._answer.recv()  # type: ignore[no-any-return]
        return self._work()


def _tell(there: Connection, work: Callable[[], object], parent: int) -> None:
    """Ends with its parent, and leaves it to that to tell of interrupts and errors."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    with contextlib.suppress(Exception):  # the parent does the work itself and meets it there
        there.send(work())


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)
