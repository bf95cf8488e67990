"""Workers in forks of one process that has loaded what they need, reached by pipes: many short runs without Ray.

For benchmarks alone: what travels is pickled between processes of one user, and a worker that dies ends the run.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rpeg.job import Job
from rpeg.plan import Plan
from rpeg.runtime.crew import drive, stations
from rpeg.runtime.driver import Driver
from rpeg.runtime.model_files import model_files
from rpeg.runtime.recorder import Recorder, View
from rpeg.runtime.run_directory import RunDirectory
from rpeg.runtime.train import Options, Outcome, conduct
from rpeg.runtime.work import Answer, Station, Work, unbundle
from rpeg.runtime.worker import Worker

END = None


def train(job: Job, plan: Plan, run: RunDirectory, options: Options, view: View) -> Outcome:
    """`rpeg.runtime.train` for a plan that begins anew."""

    async def crew(trace: Path, recorder: Recorder) -> Driver:
        lanes = sorted({lane for a in plan.assignments for lane in a.all_lanes()})
        models = model_files(job, plan.graph)
        addresses = dict.fromkeys(lanes, "127.0.0.1")
        made = stations(job, plan, models, addresses, trace, None, None)
        with _handles(made) as handles:
            return await drive(job, plan, run, None, trace, options, recorder, handles)

    return conduct(job, plan, run, None, options, view, "real", crew)


@contextmanager
def _handles(made: Iterable[Station]) -> Iterator[dict[str, PipeHandle]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rpeg.runtime.worker", "transformers.models.llama.modeling_llama"])
    processes = []
    handles: dict[str, PipeHandle] = {}
    try:
        for station in made:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, station), daemon=True)
            process.start()
            processes.append(process)
            handles[station.lane] = PipeHandle(station, here)
        yield handles
    finally:
        for process in processes:
            process.kill()
            process.join()


def _serve(pipe: Connection, station: Station) -> None:
    """Calls a worker's methods as they are asked for, and sends what it answers and an end."""
    worker = Worker(station)
    while True:
        method, arguments = pipe.recv()
        try:
            for answer in _answers(worker, method, arguments):
                pipe.send(answer)
            pipe.send(END)
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is awaited
            pipe.send(error)


def _answers(worker: Worker, method: str, arguments: Sequence[Any]) -> Iterable[Any]:
    if method == "answers":
        return worker.answers(*arguments)
    found = getattr(worker, method)(*arguments)
    return unbundle(found, ()) if method in ("receive", "move") else [(found,)]


class PipeHandle:
    """A worker at the other end of a pipe. It is asked for one thing at a time."""

    def __init__(self, station: Station, pipe: Connection) -> None:
        self.station, self.pipe = station, pipe
        self.threads = ThreadPoolExecutor(1)

    async def call(self, method: str, *arguments: Any) -> Any:
        found = [answer async for (answer,) in self._ask(method, *arguments)]
        return found[-1]

    def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        return self._ask("answers", work, references)

    def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        return self._ask("receive", work, list(references))

    def move(self, work: Work) -> AsyncIterator[Answer]:
        return self._ask("move", work)

    async def _ask(self, method: str, *arguments: Any) -> AsyncIterator[Any]:
        there = partial(asyncio.get_running_loop().run_in_executor, self.threads)
        await there(self.pipe.send, (method, arguments))
        while (answer := await there(self.pipe.recv)) is not END:
            if isinstance(answer, Exception):
                raise answer
            yield answer
