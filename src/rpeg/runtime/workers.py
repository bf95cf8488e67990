"""Workers as whoever sets a run up reaches them, wherever they live: processes that Ray carries, or this one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from rpeg.errors import RpegError
from rpeg.runtime.dispatch import Handle
from rpeg.runtime.failure import Failure, WorkerFailed, cause_of, error_text, is_death, is_of_a_peer
from rpeg.runtime.work import Station


class Hosted(Handle, Protocol):
    """A worker somewhere."""

    @property
    def station(self) -> Station: ...

    def call(self, method: str, *arguments: Any) -> Awaitable[Any]:
        """Calls a method of the worker."""

    def end(self) -> None:
        """Ends it at once, whatever it does."""


async def call_all(
    handles: Mapping[str, Hosted],
    method: str,
    *arguments: Any,
    doing: str = "",
    within_seconds: float | None = None,
) -> dict[str, Any]:
    """Calls a method of every worker at once; answers by lane.

    doing: what it is, in words. WorkerFailed names a worker that fails, or has not answered in time.
    """
    calls = {lane: asyncio.ensure_future(h.call(method, *arguments)) for lane, h in handles.items()}
    try:
        await asyncio.wait(calls.values(), timeout=within_seconds, return_when=asyncio.FIRST_EXCEPTION)
        late = [lane for lane, call in calls.items() if not call.done()]
        for lane, call in calls.items():
            if call.done() and (error := call.exception()) is not None:
                raise _failure(lane, doing or method, error) from error
        if late:
            others = f", and neither have {', '.join(late[1:])}" if late[1:] else ""
            why = f"has not come up within {within_seconds:g} s{others}"
            raise WorkerFailed(Failure(late[0], doing or method, None, why))
        return {lane: call.result() for lane, call in calls.items()}
    finally:
        for call in calls.values():
            call.cancel()


async def lost_among(handles: Mapping[str, Hosted], within_seconds: float = 5.0) -> list[str]:
    """Lanes of workers that are known to be dead, wherever they were: who is asked and is busy does not answer."""
    calls = {lane: asyncio.ensure_future(handle.call("is_there")) for lane, handle in handles.items()}
    try:
        await asyncio.wait(calls.values(), timeout=within_seconds, return_when=asyncio.FIRST_EXCEPTION)
        return [lane for lane, call in calls.items() if call.done() and is_death(call.exception())]
    finally:
        for call in calls.values():
            call.cancel()


def _failure(lane: str, doing: str, error: BaseException) -> RpegError:
    """What one of us said, as it is; else the worker's failure."""
    cause, why = cause_of(error), error_text(error)
    return (
        cause
        if isinstance(cause, RpegError)
        else WorkerFailed(Failure(lane, doing, None, why, is_of_a_peer(why)))
    )
