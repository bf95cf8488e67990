"""Time that passes only when nobody has anything left to do."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable
from contextvars import Context
from itertools import count
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock starts at 0 and jumps to the next timer as soon as nothing else is to be done.

    Timers come one at a time, those of one moment in the order in which they were set, each after all that the one
    before it led to. The clock is at a timer's moment exactly when it comes. Whatever runs in other threads or processes
    takes no virtual time: it must not be waited for.
    """

    def __init__(self) -> None:
        self._now, self._set = 0.0, count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Callable[[], object]]] = []
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        return self._now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)

        def come() -> None:
            if not timer.cancelled():
                callback(*args)

        def start() -> None:
            self.call_soon(come, context=context)

        heapq.heappush(self._timers, (when, next(self._set), timer, start))
        return timer

    def _jump(self) -> bool:
        """To the next timer; False where there is none."""
        while self._timers:
            when, _, timer, start = heapq.heappop(self._timers)
            if not timer.cancelled():
                self._now = max(self._now, when)
                start()
                return True
        return False


class _Jumping(selectors.DefaultSelector):
    """Where the loop would wait, time jumps instead; it waits only where no timer is set."""

    def __init__(self, jump: Callable[[], bool]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        idle = timeout is None or timeout > 0
        return super().select(0 if idle and self._jump() else timeout)


async def until(moment: float) -> None:
    """Sleeps until the loop's clock says so; not at all where it is later already."""
    loop = asyncio.get_running_loop()
    if moment > loop.time():
        woken: asyncio.Future[None] = loop.create_future()
        loop.call_at(moment, _wake, woken)
        await woken


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
