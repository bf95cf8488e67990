"""Runs of one device in this process: the same driver and workers as ever, without other processes to start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rpeg.backends.training.checkpoint import read_weights
from rpeg.job import Job
from rpeg.plan import Plan, check, write_plan
from rpeg.runtime.driver import Checkpoints, Driver
from rpeg.runtime.limits import check_backends
from rpeg.runtime.model_files import model_files
from rpeg.runtime.record import StepRecord
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.runtime.train import stations
from rpeg.runtime.work import Answer, Work, unbundle
from rpeg.runtime.worker import Worker
from rpeg.trace import Trace, begin_stretch, end_stretch, read_traces
from runtime.runs import Silent


@dataclass(frozen=True)
class Here:
    """A worker in this process: what it answers comes as it is."""

    worker: Worker

    async def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        for answer in self.worker._answers(work, references):
            yield answer

    async def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        for answer in unbundle(self.worker.receive(work, references), ()):
            yield answer

    async def move(self, work: Work) -> AsyncIterator[Answer]:
        for answer in unbundle(self.worker.move(work), ()):
            yield answer


@dataclass(frozen=True)
class RanHere:
    """A finished run. weights: of each trained model at its end. workers: by lane."""

    records: tuple[StepRecord, ...]
    traces: tuple[Trace, ...]
    weights: Mapping[str, Mapping[str, torch.Tensor]]
    checkpoints: tuple[Checkpoint, ...]
    workers: Mapping[str, Worker]


def run_here(job: Job, plan: Plan, *, start: Checkpoint | None = None) -> RanHere:
    """Runs a plan of one device, from a checkpoint where one is given."""
    check(plan)
    check_backends(plan)
    directory = RunDirectory(Path(job.output))
    first_step = start.steps if start else 0
    if start is None:
        directory.path.mkdir(parents=True)
        write_plan(plan, directory.plan)
    trace = begin_stretch(directory.path, "real", job.steps, first_step)
    lanes = sorted({lane for a in plan.assignments for lane in a.all_lanes()})
    places = stations(job, plan, model_files(job, plan.graph), lanes, "127.0.0.1", trace, start)
    workers = {s.lane: _worker(s) for s in places}
    keep = Checkpoints(directory, job.checkpoint.every, job.checkpoint.keep, job.seed)
    handles = {lane: Here(worker) for lane, worker in workers.items()}
    driver = Driver(plan, job.steps, first_step, handles, {}, trace, keep, Silent([]), 60)
    asyncio.run(driver.run())
    for worker in workers.values():
        worker.close()
    end_stretch(trace)
    last = directory.checkpoints()[-1].path
    weights = {path.name: read_weights(path) for path in last.iterdir() if path.is_dir()}
    return RanHere(
        tuple(driver.records),
        read_traces(directory.path),
        weights,
        tuple(directory.checkpoints()),
        workers,
    )


def _worker(station: Any) -> Worker:
    """Free to roam over the cores; tests leave the process as they find it."""
    from dataclasses import replace

    worker = Worker(replace(station, core=None))
    worker.prepare("")
    if not station.is_host:
        assert worker.publish_initial() == {}, "a plan that feeds copies needs more than one process"
    return worker
