"""`rpeg plan`: which plan is best for a job, and what will it take?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ORDER = 30


def command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.")],
    out: Annotated[Path, typer.Option(help="Where the best plan is kept.")] = Path("plan.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    measure: Annotated[
        bool, typer.Option(help="Measure this machine if that was not done yet (needs torch).")
    ] = True,
    pick: Annotated[int, typer.Option(min=1, help="Keep the plan of this number, instead of the best.")] = 1,
    show_all: Annotated[bool, typer.Option("--all", help="Show every plan, not only the fastest.")] = False,
    seed: Annotated[int, typer.Option(help="Fixes the drawn lengths.")] = 0,
) -> None:
    """Estimate the good plans for a job, rank them, and keep the best. Starts nothing.

    \b
    Examples:
      rpeg plan job.yaml
      rpeg plan job.yaml --out best.json     then: rpeg train job.yaml --plan best.json
      rpeg plan job.yaml --all --pick 8      another plan of the table, to compare with
      rpeg plan job.yaml --json              for programs
    """
    from rpeg.cli._planning import problem_of
    from rpeg.errors import InputError
    from rpeg.job import load_job
    from rpeg.plan import write_plan
    from rpeg.search import plan_job

    job = load_job(job_file)
    problem = problem_of(job, lambda line: typer.echo(line, err=True), measure=measure)
    ranked = plan_job(problem, seed=seed)
    if pick > len(ranked.candidates):
        raise InputError(f"there are {len(ranked.candidates)} plans; there is no plan {pick}")
    chosen = ranked.candidates[pick - 1]
    write_plan(chosen.plan, out)
    if as_json:
        import json

        from rpeg.report.plan import ranked_json

        typer.echo(json.dumps(ranked_json(ranked, problem), indent=1))
        return
    from rich.console import Console

    from rpeg.report.plan import LEGEND, SHOWN, misfits, ranking, summary

    console = Console(highlight=False)
    count = len(ranked.candidates)
    console.print(ranking(ranked, count if show_all else SHOWN, pick - 1))
    more = () if show_all or count <= SHOWN else (f"… and {count - SHOWN} slower ones (--all)",)
    for line in (*more, *LEGEND, *misfits(ranked.misfits), *summary(chosen, problem)):
        console.print(line, markup=False)
    which = "The best plan" if pick == 1 else f"Plan {pick}"
    console.print(f"{which} is in {out}.", markup=False)
