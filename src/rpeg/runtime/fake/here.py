"""A fake process within this one: many lanes and neither Ray nor other processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from rpeg.runtime.fake.host import FakeHost, Post
from rpeg.runtime.work import Answer, Work


class HereFake:
    """One fake process, as the driver calls it."""

    def __init__(self, post: Post) -> None:
        self.host = FakeHost(post)

    def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        return self.host.answers(work)

    def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        return self.host.answers(work)

    def move(self, work: Work) -> AsyncIterator[Answer]:
        return self.host.answers(work)

    async def ready(self) -> None:
        pass

    async def close(self) -> None:
        self.host.close()
