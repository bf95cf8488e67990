"""Workers in this process, one after another: a run of one device without other processes, and without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rpeg.errors import InputError
from rpeg.plan import Plan
from rpeg.runtime.work import Answer, Station, Work, unbundle
from rpeg.runtime.worker import Worker


def check_is_for_one_process(plan: Plan) -> None:
    """InputError for a plan of several devices: each needs a process of its own."""
    used = sorted({i for a in plan.assignments for i in getattr(a.block, "ids", ())})
    if len(used) > 1:
        raise InputError(
            f"the plan uses {len(used)} devices and one process carries 1: run it without --in-process, "
            "or plan the job with cluster: {cpu: 1}"
        )


class HereHandle:
    """A worker of this process. It does not bind the process to a core: others may live in it too."""

    def __init__(self, station: Station) -> None:
        self.station = replace(station, core=None)
        self.worker = Worker(self.station)

    def end(self) -> None:
        """Its process is ours and goes on."""

    async def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self.worker, method)(*arguments)

    def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        return _one_by_one(self.worker.answers(work, references))

    def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        return _one_by_one(unbundle(self.worker.receive(work, references), ()))

    def move(self, work: Work) -> AsyncIterator[Answer]:
        return _one_by_one(unbundle(self.worker.move(work), ()))


async def _one_by_one(answers: Iterable[Answer]) -> AsyncIterator[Answer]:
    """Between two answers the driver gets to hear of the first, and the other workers get a turn."""
    for answer in answers:
        yield answer
        await asyncio.sleep(0)
