"""A worker that is lost, or does what it should not: what the run breaks off for, and may go on after."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.errors import RpegError, RunError

DIED = frozenset({"ActorDiedError", "ActorUnavailableError", "WorkerCrashedError"})
MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
CONNECTIONS = (
    "Connection closed",
    "Connection reset",
    "Broken pipe",
    "Timed out waiting",
    "DistNetworkError",
    "[Errno 104]",
)
"""What collectives say where another process of theirs is gone."""
GONE = "the process has died: killed from outside, or by the system for want of memory"


@dataclass(frozen=True)
class Failure:
    """lane: of the worker. doing: an item or a stage of its start. step: of the item; None before the first one.

    why: one line. peer: whether it may be the consequence of another worker's death: what came over a connection.
    hangs: whether it is alive, as far as one knows, and nothing comes of it.
    """

    lane: str
    doing: str
    step: int | None
    why: str
    peer: bool = False
    hangs: bool = False

    @property
    def text(self) -> str:
        return f"{self.doing}: worker {self.lane}: {self.why}"


class WorkerFailed(RunError):
    """A run broke off for no error that it made itself: from its last checkpoint it may go on. report: more lines."""

    def __init__(self, failure: Failure, report: str = "") -> None:
        super().__init__(f"{failure.text}\n{report}".rstrip())
        self.failure, self.report = failure, report


class Stalled(RunError):
    """Nothing has happened for so many seconds. waits: who waits for whom, in lines."""

    def __init__(self, seconds: float, waits: str) -> None:
        super().__init__(f"nothing has happened for {seconds:g} s.\n{waits}")
        self.seconds = seconds


def cause_of(error: BaseException) -> BaseException:
    """What an error that came from another process was there."""
    cause = error
    while (inner := getattr(cause, "cause", None)) is not None and isinstance(inner, BaseException):
        cause = inner
    return cause


def error_text(error: BaseException) -> str:
    """The innermost cause in one line, with its type where it is not one of ours."""
    cause = cause_of(error)
    name = type(cause).__name__
    if is_death(error):
        return GONE
    text = str(cause).strip() or name
    if isinstance(cause, RpegError):
        return text
    line = text.splitlines()[-1]
    is_memory = isinstance(cause, MemoryError) or name == "OutOfMemoryError" or any(m in text for m in MEMORY)
    return f"out of memory: {line}" if is_memory else f"{name}: {line}"


def is_death(error: BaseException | None) -> bool:
    """Whether it says that the process which should have answered is gone."""
    return error is not None and type(cause_of(error)).__name__ in DIED


def is_of_a_peer(why: str) -> bool:
    """Whether a failure may be the consequence of another worker's death."""
    return any(word in why for word in CONNECTIONS)
