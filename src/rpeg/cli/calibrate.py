"""`rpeg calibrate`: measures this machine for a job's models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ORDER = 25


def command(
    job_file: Annotated[
        Path, typer.Argument(metavar="JOB.YAML", help="The job whose models to measure for.")
    ],
) -> None:
    """Measure this machine: operations and layers at the job's shapes, never a stage or a step of it.

    Takes about half a minute and is kept in a cache; `rpeg plan` and `rpeg train` do it by themselves when needed.

    \b
    Example:
      rpeg calibrate job.yaml
    """
    from rpeg.cli._planning import measure_for
    from rpeg.job import load_job

    calibration = measure_for(load_job(job_file), lambda line: typer.echo(line))
    points = sum(len(grid.seconds) for grid in calibration.tables.values())
    typer.echo(
        f"{calibration.machine}, {calibration.dtype}: {points} points in {len(calibration.tables)} tables:"
    )
    for op, grid in sorted(calibration.tables.items()):
        typer.echo(f"  {op:<24} over {' × '.join(grid.axes)}")
