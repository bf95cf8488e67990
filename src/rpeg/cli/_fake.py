"""`rpeg train --fake`: what the option means, and what workers that only pretend wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rpeg.job import Job
    from rpeg.plan import Plan
    from rpeg.runtime.fake.pretend import Fake

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


def fake_of(job: Job, plan: Plan, scale: float | None) -> Fake:
    """Fake devices for a plan. On a clock of real seconds the costs have been asked before, so that workers only wait."""
    from rpeg.cli._planning import problem_of
    from rpeg.runtime.fake.pretend import Fake
    from rpeg.sim import StageCosts, simulate

    problem = problem_of(job, lambda line: None, measure=False)
    fake = Fake(StageCosts(plan, problem.facts), scale)
    if scale is not None:
        simulate(plan, fake.work, min(job.steps, 20), job.seed, samples=False)
    return fake


def how(scale: float | None) -> str:
    """A line that says what the seconds of the run are."""
    clock = "on a virtual clock" if scale is None else f"{scale:g} s here for each of its seconds"
    return f"{LABEL}; {clock}"
