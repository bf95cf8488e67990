"""`rpeg simulate`: the trace that a plan is expected to leave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ORDER = 32


def command(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN.JSON", help="A plan, as `rpeg plan` keeps it.")],
    job_file: Annotated[Path, typer.Option("--job", metavar="JOB.YAML", help="The job that it is for.")],
    out: Annotated[Path, typer.Option(help="A run's directory; the trace is added to it.")] = Path(
        "simulated"
    ),
    steps: Annotated[int, typer.Option(min=1, help="Training steps to simulate.")] = 10,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Fixes the drawn lengths.")] = 0,
) -> None:
    """Simulate a plan and write the trace, as a real run would leave it. Starts nothing.

    \b
    Example:
      rpeg simulate plan.json --job job.yaml --out simulated     then: rpeg verify simulated
    """
    from rpeg.cli._planning import check_is_for, problem_of
    from rpeg.errors import InputError
    from rpeg.job import load_job
    from rpeg.plan import check, digest, read_plan
    from rpeg.sim import StageCosts, simulate
    from rpeg.trace import write_trace

    plan = check(read_plan(plan_file))
    kept = out / "plan.json"
    if kept.exists() and digest(read_plan(kept)) != digest(plan):
        raise InputError(
            f"{out} holds traces of another plan than {plan_file}; choose another directory: --out"
        )
    job = load_job(job_file)
    check_is_for(plan, job)
    problem = problem_of(job, lambda line: typer.echo(line, err=True))
    trace = simulate(plan, StageCosts(plan, problem.facts), steps, seed)
    typer.echo(f"The simulated trace of {steps} steps is in {write_trace(trace, out)}.")
