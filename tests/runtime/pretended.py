"""Runs of the real driver on fake devices under a virtual clock, without a job round them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from rpeg.plan import Plan, write_plan
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.driver import Driver
from rpeg.runtime.fake.injection import NOTHING, Injection
from rpeg.runtime.fake.pretend import Fake, fakes, initial_weights
from rpeg.runtime.fake.virtual import VirtualLoop
from rpeg.runtime.run_directory import RunDirectory
from rpeg.sim import Costs
from rpeg.trace import Trace, begin_stretch, end_stretch, read_traces
from runtime.runs import Silent


def pretended(
    plan: Plan,
    costs: Costs,
    steps: int,
    injection: Injection = NOTHING,
    *,
    stall_seconds: float = 1e9,
    first: int = 0,
) -> Trace:
    """Raises RunError as the driver does."""
    with TemporaryDirectory() as place:
        directory = Path(place)
        write_plan(plan, directory / "plan.json")
        trace = begin_stretch(directory, "fake", steps, first)
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(_drive(plan, Fake(costs, injection=injection), steps, first, trace, stall_seconds))
        end_stretch(trace)
        return read_traces(directory)[0]


async def _drive(plan: Plan, fake: Fake, steps: int, first: int, trace: Path, stall_seconds: float) -> None:
    with fakes(plan, fake, 0, trace, None) as handles:
        keep = Checkpoints(RunDirectory(trace.parent), every=0, keep=1, seed=0)
        weights = initial_weights(plan, first)
        driver = Driver(plan, steps, first, handles, weights, trace, keep, Silent([]), stall_seconds)
        await driver.run()
