"""Workers as whoever sets a run up reaches them, wherever they live: processes that Ray carries, or this one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from rpeg.runtime.driver import Handle
from rpeg.runtime.work import Station


class Hosted(Handle, Protocol):
    """A worker somewhere."""

    @property
    def station(self) -> Station: ...

    def call(self, method: str, *arguments: Any) -> Awaitable[Any]:
        """Calls a method of the worker."""


async def call_all(handles: Mapping[str, Hosted], method: str, *arguments: Any) -> dict[str, Any]:
    """Calls a method of every worker at once; answers by lane."""
    answers = await asyncio.gather(*(handle.call(method, *arguments) for handle in handles.values()))
    return dict(zip(handles, answers, strict=True))
