"""A fake process that Ray carries, and that the driver calls as it calls a real worker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from rpeg.runtime.fake.host import FakeHost, Post
from rpeg.runtime.ray_calls import RayCalls
from rpeg.runtime.work import Work, bundle, pack


class RayFakeHost:
    """The actor: its lanes' items wait side by side."""

    def __init__(self, post: Post) -> None:
        # The actor's loop may keep time more coarsely than the driver's clock, to which spans are held.
        self._host = FakeHost(post, time.monotonic)

    async def run(self, work: Work, *batches: Any) -> Any:
        return bundle([answer async for answer in self._host.answers(work)], work.contents)

    async def stream(self, work: Work, *batches: Any) -> AsyncIterator[Any]:
        async for answer in self._host.answers(work):
            for thing in pack(answer):
                yield thing

    async def receive(self, work: Work, references: Sequence[Any]) -> Any:
        return await self.run(work)

    async def move(self, work: Work) -> Any:
        return await self.run(work)

    async def ready(self) -> None:
        """Answers when the process is up."""

    async def close(self) -> None:
        self._host.close()


class RayFake(RayCalls):
    """One fake process, as the driver calls it."""

    def __init__(self, post: Post, lanes: int) -> None:
        import ray

        actor = ray.remote(RayFakeHost).options(num_cpus=1, max_restarts=0, max_concurrency=lanes + 8)
        super().__init__(actor.remote(post))

    async def close(self) -> None:
        await self.call("close")

    async def ready(self) -> None:
        await self.call("ready")
