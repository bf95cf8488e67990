"""`rpeg train --fake`: what the option means, and what workers that only pretend wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from rpeg.job import Job
    from rpeg.plan import Plan
    from rpeg.runtime import Checkpoint, Options, Outcome, RunDirectory
    from rpeg.sim import Costs

VIRTUAL = "virtual"
LABEL = "fake devices: times are the cost model's, nothing is trained"


def scale_of(text: str) -> float | None:
    """Seconds here for each of the cost model's; None for a virtual clock. Raises InputError for anything else."""
    import math

    from rpeg.errors import InputError

    if text == VIRTUAL:
        return None
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise InputError(
            f"--fake {text} is neither {VIRTUAL} nor a scale; a scale is seconds here for each of the cost model's: 0.001"
        )
    return scale


def pretended(
    job: Job,
    plan: Plan,
    run: RunDirectory,
    start: Checkpoint | None,
    options: Options,
    scale: float | None,
    console: Console,
) -> tuple[Outcome, Costs]:
    """Runs a job on fake devices; its outcome, and the costs that predict it."""
    from rpeg.cli._planning import problem_of
    from rpeg.report.live import PlainView
    from rpeg.runtime.fake.pretend import Fake, pretend
    from rpeg.sim import StageCosts, simulate

    clock = "on a virtual clock" if scale is None else f"{scale:g} s here for each of its seconds"
    console.print(f"{LABEL}; {clock}", markup=False)
    problem = problem_of(job, lambda line: None, measure=False)
    fake = Fake(StageCosts(plan, problem.facts), scale)
    if scale is not None:  # what was asked before need not be worked out while somebody waits
        simulate(plan, fake.work, min(job.steps, 20), job.seed, samples=False)
    return pretend(job, plan, run, start, options, PlainView(console, job.steps), fake), fake.work
