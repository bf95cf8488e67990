"""`rpeg sweep`: how do step time and cost change with devices, kinds, staleness and lengths?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

ORDER = 32


def command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.")],
    devices: Annotated[str, typer.Option(help="How many: 8,16,24 or 8..2048 (doubling).")] = "",
    kind: Annotated[str, typer.Option(help="Of which kind or system: h100,h200,b200.")] = "",
    staleness: Annotated[str, typer.Option(help="Versions that tokens may be behind: 0,1,2.")] = "",
    samples: Annotated[str, typer.Option(help="Samples a prompt: 4,8,16.")] = "",
    response: Annotated[
        str, typer.Option(help="Mean tokens of a response, all lengths in proportion: 1000..8000.")
    ] = "",
    price: Annotated[
        list[str] | None, typer.Option(metavar="KIND=X", help="Of a device-hour: h100=2.5,h200=3.1.")
    ] = None,
    target_seconds: Annotated[
        float | None, typer.Option(min=0, help="Pick the cheapest with such a step.")
    ] = None,
    target_hours: Annotated[float | None, typer.Option(min=0, help="The same for a run of --steps.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of the run that --target-hours is for.")] = 1000,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a line of CSV for each row instead.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="SVG", help="Where a plot is written.")] = None,
    rows: Annotated[Path, typer.Option(help="Where rows are kept as they are found.")] = Path("sweep.jsonl"),
    resume: Annotated[bool, typer.Option("--resume", help="Take what is there from the kept rows.")] = False,
    search: Annotated[
        bool,
        typer.Option("--search", help="Search at every size, as rpeg plan does; else plans by construction."),
    ] = False,
    processes: Annotated[
        int, typer.Option(min=0, help="Sizes that are planned at once; 0: one for each core.")
    ] = 0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Fixes the drawn lengths and the search.")
    ] = 0,
) -> None:
    """Plan a job at many sizes, on many kinds of devices, with other permissions: all combinations. Starts nothing.

    Exits 2 where no combination has a plan.

    \b
    Examples:
      rpeg sweep job.yaml --devices 8..2048
      rpeg sweep job.yaml --devices 16,32,64 --kind h100,h200,b200 --price h100=2.5,h200=3.1,b200=4.2
      rpeg sweep job.yaml --devices 8..256 --staleness 0,1 --plot sweep.svg
      rpeg sweep job.yaml --devices 8..512 --target-hours 24 --steps 1000     the cheapest that is done in a day
      rpeg sweep job.yaml --devices 8..2048 --csv > sweep.csv
      rpeg sweep job.yaml --devices 8..2048 --resume                          after Ctrl-C, or with more sizes
    """
    from rpeg.cli._planning import problem_of
    from rpeg.cli._sweeping import Asked, Kept, axes_of, pool_of, show, target_of
    from rpeg.errors import InfeasibleError, InputError
    from rpeg.job import load_job
    from rpeg.search import Budget
    from rpeg.search.core.library import why_missing
    from rpeg.search.given import NOTHING
    from rpeg.search.sweep import Row, points, swept

    asked = Asked(devices, kind, staleness, samples, response, tuple(price or ()))
    target = target_of(target_seconds, target_hours, steps)
    job = load_job(job_file)
    problem = problem_of(job, lambda line: typer.echo(line, err=True), measure=False)
    if problem.given:
        typer.echo("The layouts that the job gives are for one size: all are chosen here.", err=True)
        problem = replace(problem, given=NOTHING)
    at = points(axes_of(asked, problem))
    if search and (why := why_missing()):
        raise InputError(f"--search: {why}")
    budget = Budget() if search else None
    found = list[Row]()
    interrupted = False
    with Kept(rows, resume, len(at), quiet=as_json or as_csv) as kept, pool_of(processes, len(at)) as pool:
        planned = swept(problem, at, seed=seed, budget=budget, known=kept.known, pool=pool, report=kept.begin)
        try:
            for row in planned:
                found.append(row)
                kept.add(row)
        except KeyboardInterrupt:
            interrupted = True
    show(found, target, as_json=as_json, as_csv=as_csv, plot=plot)
    if interrupted:
        typer.echo(f"{len(found)} of {len(at)} rows are in {rows}; --resume goes on from them.", err=True)
        raise KeyboardInterrupt
    if not any(row.outcome for row in found):
        raise InfeasibleError("none of these has a plan; `rpeg plan` looks for what would make one fit")
