"""The driver's calls of a Ray actor that answers as a worker does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

from rpeg.runtime.work import Answer, Work, unbundle, unpack


class RayCalls:
    """What `Handle` asks for, of an actor with the methods `run`, `stream`, `receive` and `move`."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        # A method with its options, and its check of them, costs as much as a call with it.
        self._stream = actor.stream.options(num_returns="streaming").remote
        self._receive, self._move = actor.receive.remote, actor.move.remote
        self._runs: dict[int, Any] = {}

    def call(self, method: str, *arguments: Any) -> Awaitable[Any]:
        answer: Awaitable[Any] = getattr(self.actor, method).remote(*arguments)
        return answer

    def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        if work.streams:
            return self._streamed(self._stream(work, *references))
        run = self._runs.get(work.contents)
        if run is None:
            run = self._runs[work.contents] = self.actor.run.options(num_returns=1 + work.contents).remote
        return self._whole(run(work, *references))

    def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        """In a list, references arrive as such: the worker takes one at a time."""
        return self._whole(self._receive(work, list(references)))

    def move(self, work: Work) -> AsyncIterator[Answer]:
        return self._whole(self._move(work))

    @staticmethod
    async def _whole(references: Any) -> AsyncIterator[Answer]:
        """One reference, or the headers' and one for each content: a call without a stream costs half as much."""
        first, *contents = references if isinstance(references, list) else [references]
        for answer in unbundle(await first, contents):
            yield answer

    @staticmethod
    async def _streamed(stream: Any) -> AsyncIterator[Answer]:
        async for reference in stream:
            answer, count = await reference
            yield unpack(answer, [await anext(stream) for _ in range(count)])
