"""Signs of life: a thread in every worker process tells what the process does, a few times in a heartbeat.

RUN/trace-1/beats/device0.json      the last beat, one JSON object, written over the one before
RUN/trace-1/beats/asked             while it is there, workers write down where they are
RUN/trace-1/beats/device0.stack     where that was: the Python stack of the thread that runs items

A file needs no call of the worker, which is busy, and nobody's clock: whoever reads sees whether the count goes up.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

import psutil

BEATS_IN_A_HEARTBEAT = 5
SIZE_BYTES = 1024
"""Of a beat's file, so that writing over it needs no room on a disk that has become full."""
FRAMES = 12
"""Of a stack the innermost ones."""
IDLE = "waiting for an item"
COLLECTIVES = "distributed_c10d.py"
"""Where torch keeps its collectives."""


@dataclass(frozen=True)
class Beat:
    """What a worker last told. count: goes up. born: when its process began, by its node's clock, in seconds.

    doing: an item of `step`, or a stage of its start; for `seconds`. inside: the collective that it is in, if any.
    memory_bytes: resident.
    """

    lane: str
    count: int
    pid: int
    born: float
    node: str
    doing: str
    step: int | None
    seconds: float
    inside: str
    memory_bytes: int

    @staticmethod
    def read(path: Path) -> Beat | None:
        """None where there is none yet, or it is just being written."""
        try:
            return Beat(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def text(self) -> str:
        """What it was doing, in words."""
        where = f", in {self.inside}" if self.inside else ""
        return f"{self.doing} for {self.seconds:.1f} s{where}"


def beats_of(trace: Path) -> Path:
    """Where the workers of a stretch beat."""
    return trace / "beats"


def beat_file(trace: Path, lane: str) -> Path:
    return beats_of(trace) / f"{lane}.json"


class Heart:
    """Beats until it is closed. Ends its process when the one that started it is gone, so that none is left over."""

    def __init__(self, trace: Path, lane: str, heartbeat_seconds: float) -> None:
        self.lane, self._trace = lane, trace
        self._every = heartbeat_seconds / BEATS_IN_A_HEARTBEAT
        self._process, self._parent = psutil.Process(), os.getppid()
        self._doing, self._since = "starting", time.monotonic()
        self._step: int | None = None
        self._thread = threading.get_ident()
        self._count, self._closed = 0, threading.Event()
        beats_of(trace).mkdir(exist_ok=True)
        self._file = os.open(beat_file(trace, lane), os.O_WRONLY | os.O_CREAT, 0o600)
        threading.Thread(target=self._run, name="heart", daemon=True).start()

    @contextlib.contextmanager
    def during(self, doing: str, step: int | None = None) -> Iterator[None]:
        """What this thread does while the block runs."""
        self._thread = threading.get_ident()
        self._doing, self._step, self._since = doing, step, time.monotonic()
        yield
        self._doing, self._since = IDLE, time.monotonic()

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            if os.getppid() != self._parent:
                os.kill(os.getpid(), 9)
            with contextlib.suppress(OSError):  # silence is what is heard of it
                self._beat()
                self._answer()
            self._closed.wait(self._every)

    def _beat(self) -> None:
        self._count += 1
        beat = Beat(
            self.lane,
            self._count,
            self._process.pid,
            self._process.create_time(),
            socket.gethostname(),
            self._doing,
            self._step,
            round(time.monotonic() - self._since, 3),
            collective(sys._current_frames().get(self._thread)),
            self._process.memory_info().rss,
        )
        os.pwrite(self._file, json.dumps(asdict(beat)).ljust(SIZE_BYTES).encode(), 0)

    def _answer(self) -> None:
        asked, answer = beats_of(self._trace) / "asked", beats_of(self._trace) / f"{self.lane}.stack"
        if asked.exists() and not answer.exists():
            partial = answer.with_suffix(".partial")
            partial.write_text(stack(sys._current_frames().get(self._thread)))
            partial.replace(answer)


def collective(frame: FrameType | None) -> str:
    """The collective that a thread is in; empty where it is in none."""
    inside = ""
    while frame is not None:
        if frame.f_code.co_filename.endswith(COLLECTIVES):
            inside = frame.f_code.co_name
        frame = frame.f_back
    return inside


def stack(frame: FrameType | None) -> str:
    """The innermost calls of a thread, as Python prints them."""
    return "".join(traceback.format_stack(frame)[-FRAMES:]) if frame is not None else "no Python runs in it\n"
