"""Exact asynchronous runs are the same whatever their timing: random delays before and within every item."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rpeg.backends.training.checkpoint import read_weights
from rpeg.job import Job
from rpeg.plan import Plan
from rpeg.runtime import Options, Outcome, prepare_directory
from rpeg.runtime.crew import drive, stations
from rpeg.runtime.driver import Driver
from rpeg.runtime.model_files import model_files
from rpeg.runtime.ray_cluster import RayHandle, Seat, ray_cluster
from rpeg.runtime.recorder import Recorder
from rpeg.runtime.train import conduct
from rpeg.runtime.work import Answer, Station, Work
from rpeg.trace import read_traces
from rpeg.verify import prove_run
from runtime.runs import Silent, counting, make_job, plan_for, tiny_model

LONGEST_SECONDS = 0.25
SEEDS = (None, 1)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Delayed:
    """A worker whose items begin, answer and end later than they would, by draws of its own."""

    def __init__(self, station: Station, seat: Seat, seed: int) -> None:
        self.inner = RayHandle(station, seat)
        self.station = station
        self.draws = random.Random(f"{seed} {station.lane}")

    def call(self, method: str, *arguments: Any) -> Any:
        return self.inner.call(method, *arguments)

    def end(self) -> None:
        self.inner.end()

    def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        return self._later(lambda: self.inner.run(work, references))

    def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        return self._later(lambda: self.inner.receive(work, references))

    def move(self, work: Work) -> AsyncIterator[Answer]:
        return self._later(lambda: self.inner.move(work))

    async def _later(self, begin: Any) -> AsyncIterator[Answer]:
        await self._wait()
        async for answer in begin():
            await self._wait()
            yield answer

    async def _wait(self) -> None:
        await asyncio.sleep(self.draws.random() ** 3 * LONGEST_SECONDS)


def run(job: Job, plan: Plan, seed: int | None) -> Outcome:
    options = Options(export=False, stall_seconds=120)
    directory, _, _ = prepare_directory(job, plan, options)
    lanes = sorted({lane for a in plan.assignments for lane in a.all_lanes()})

    async def crew(trace: Path, recorder: Recorder) -> Driver:
        with ray_cluster(len(lanes), None) as address:
            places = dict.fromkeys(lanes, address)
            made = stations(job, plan, model_files(job, plan.graph), places, trace, None, None)
            seat = Seat(address)
            handles = {s.lane: RayHandle(s, seat) if seed is None else Delayed(s, seat, seed) for s in made}
            return await drive(job, plan, directory, None, trace, options, recorder, handles)

    return conduct(job, plan, directory, None, options, Silent([]), "real", crew)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """PPO on two devices, one of which generates a version ahead, streamed by groups."""
    model = tiny_model(tmp_path_factory.mktemp("model"))
    found = []
    for seed in SEEDS:
        output = tmp_path_factory.mktemp(f"delays-{seed}") / "run"
        job = make_job(model, output, steps=3, reward=counting(model))
        plan = plan_for(
            job,
            {"generate": (0,), "reference": (0,)},
            rest=(1,),
            transforms=("stream{chunk=1,unit=group}", "async{stage=generate,staleness=1,freshness=exact}"),
            shifts={s.name: 1 for s in job.algorithm.graph().stages if s.name not in ("generate", "prompts")},
        )
        found.append(run(job, plan, seed))
    return found


def test_samples_losses_and_weights_are_the_same_bit_by_bit(runs: list[Outcome]) -> None:
    one, *others = runs
    names = [n for n in one.records[0].metrics if n.endswith(("loss", "grad_norm", "response_tokens"))]
    assert len(names) > 3
    for other in others:
        assert prove_run(read_traces(other.directory)).findings == ()
        for mine, theirs in zip(one.records, other.records, strict=True):
            assert mine.reward == theirs.reward
            assert [mine.metrics[n] for n in names] == [theirs.metrics[n] for n in names]
        for role in ("actor", "critic"):
            mine, theirs = (read_weights(run.directory / "checkpoint-000003" / role) for run in (one, other))
            assert mine.keys() == theirs.keys()
            for name, weight in mine.items():
                assert torch.equal(weight, theirs[name]), f"{role} {name}"


def test_the_delays_changed_the_order_of_what_happened(runs: list[Outcome]) -> None:
    """Else nothing was tried."""
    orders = [
        tuple((str(entry.what), str(entry.item)) for entry in read_traces(run.directory)[0].entries)
        for run in runs
    ]
    assert len(set(orders)) > 1
    assert len({tuple(sorted(order)) for order in orders}) == 1
