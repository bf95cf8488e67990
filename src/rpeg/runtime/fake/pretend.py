"""`pretend`: a job on devices that are not there, by the driver that would run it on them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from rpeg.job import Job
from rpeg.plan import Plan, check, lower
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.dispatch import Handle
from rpeg.runtime.driver import Driver
from rpeg.runtime.fake.costs import FakeCosts
from rpeg.runtime.fake.here import HereFake
from rpeg.runtime.fake.host import Post
from rpeg.runtime.fake.injection import NOTHING, Injection
from rpeg.runtime.fake.virtual import VirtualLoop
from rpeg.runtime.recorder import Recorder, View
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.runtime.train import Options, Outcome, conduct, interrupts, repaired
from rpeg.sim import Costs


class Fakes(Handle, Protocol):
    """A fake process somewhere."""

    async def ready(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Fake:
    """How to pretend. costs: of the real work.

    scale: seconds that pass here for each of theirs, on processes that Ray carries; None: on a virtual clock in this
    process, which jumps from one event to the next. processes: at most; each serves many lanes.
    """

    costs: Costs
    scale: float | None = None
    injection: Injection = NOTHING
    processes: int = os.cpu_count() or 1

    @property
    def work(self) -> FakeCosts:
        """What the workers wait for; simulated with these costs, a plan has the times that are to be seen."""
        if self.scale is None:
            return FakeCosts(self.costs, self.injection, 1.0, self.costs.dispatch_seconds)
        return FakeCosts(self.costs, self.injection, self.scale, 0.0)


def pretend(
    job: Job,
    plan: Plan,
    run: RunDirectory,
    start: Checkpoint | None,
    options: Options,
    view: View,
    fake: Fake,
) -> Outcome:
    """As `train`, with nothing trained. Checkpoints hold no weights: a run goes on from their step."""
    check(plan)

    def attempt(start: Checkpoint | None, options: Options) -> Outcome:
        crew = partial(_pretend, job, plan, run, start, options, fake)
        loop = VirtualLoop if fake.scale is None else None
        return conduct(job, plan, run, start, options, view, "fake", crew, loop)

    return repaired(attempt, run, start, options, view)


@contextmanager
def fakes(plan: Plan, fake: Fake, seed: int, trace: Path, address: str | None) -> Iterator[dict[str, Fakes]]:
    """By lane the fake process that serves it, for as long as the block runs."""
    lanes = lanes_of_plan(plan)
    if fake.scale is None:
        here = HereFake(Post("fake0", plan, fake.work, seed, trace.resolve()))
        yield dict.fromkeys(lanes, here)
        return
    from rpeg.runtime.fake.ray_host import RayFake
    from rpeg.runtime.ray_cluster import ray_cluster

    groups = shared_out(lanes, fake.processes)
    with ray_cluster(len(groups), address):
        handles: dict[str, Fakes] = {}
        for number, own in enumerate(groups):
            post = Post(f"fake{number}", plan, fake.work, seed, trace.resolve(), alone=True)
            handles |= dict.fromkeys(own, RayFake(post, len(own)))
        yield handles


def lanes_of_plan(plan: Plan) -> list[str]:
    """Lanes of devices in the order of these, then those of hosts."""
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    devices = sorted(lowered.held.devices, key=lowered.held.devices.__getitem__)
    return [*devices, *sorted(set(lowered.lanes) - set(devices))]


def shared_out(lanes: Sequence[str], processes: int) -> list[Sequence[str]]:
    """Neighbours together, about as many for each process."""
    count = min(processes, len(lanes))
    ends = [len(lanes) * i // count for i in range(count + 1)]
    return [lanes[a:b] for a, b in pairwise(ends)]


def initial_weights(plan: Plan, first_step: int) -> Mapping[tuple[str, int], Sequence[str]]:
    """Stand-ins for the weights that a run begins with: each model's newest version, and older ones that are read."""
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    found = {(model.name, first_step) for model in plan.graph.models if model.trainable}
    for copy in lowered.copies:
        found |= {(copy.model, v) for v in range(copy.version_before(first_step), first_step)}
    return {(model, version): [f"{model}@{version}"] for model, version in sorted(found)}


async def _pretend(
    job: Job,
    plan: Plan,
    run: RunDirectory,
    start: Checkpoint | None,
    options: Options,
    fake: Fake,
    trace: Path,
    view: Recorder,
) -> Driver:
    first_step = start.steps if start else 0
    with fakes(plan, fake, job.seed, trace, options.address) as handles:
        keep = Checkpoints(run, job.checkpoint.every, job.checkpoint.keep, job.seed)
        weights = initial_weights(plan, first_step)
        driver = Driver(
            plan, job.steps, first_step, handles, weights, trace, keep, view, options.stall_seconds
        )
        for handle in dict.fromkeys(handles.values()):
            await handle.ready()
        view.on_running()
        with interrupts(driver, view):
            await driver.run()
        for handle in dict.fromkeys(handles.values()):
            await handle.close()
    return driver
