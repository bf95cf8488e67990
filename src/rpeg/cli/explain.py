"""`rpeg explain`: why does a plan take what it takes?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ORDER = 31


def command(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN.JSON", help="A plan, as `rpeg plan` keeps it.")],
    job_file: Annotated[Path, typer.Option("--job", metavar="JOB.YAML", help="The job that it is for.")],
    depth: Annotated[int, typer.Option(min=0, help="Levels of the cost trees.")] = 4,
    seed: Annotated[int, typer.Option(help="Fixes the drawn lengths.")] = 0,
) -> None:
    """Print where a plan's seconds and bytes go: stages, cost trees, memory by phase.

    \b
    Example:
      rpeg explain plan.json --job job.yaml
    """
    from rich.console import Console

    from rpeg.cli._planning import check_is_for, problem_of
    from rpeg.job import load_job
    from rpeg.plan import check, read_plan
    from rpeg.report.plan import bounds, limits, memory, stages
    from rpeg.sim import Draws, StageCosts, estimate, stage_trees

    plan = check(read_plan(plan_file))
    job = load_job(job_file)
    check_is_for(plan, job)
    problem = problem_of(job, lambda line: typer.echo(line, err=True))
    draws = Draws(plan.workload, seed)
    found = estimate(plan, problem.facts, seed=seed, draws=draws)
    console = Console(highlight=False)
    console.print(stages(found))
    for line in (*limits(found), *bounds(found)):
        console.print(line, markup=False)
    console.print(memory(found.memory))
    for name, tree in stage_trees(plan, StageCosts(plan, problem.facts), draws).items():
        console.print(f"\n{name}, in one drawn step", markup=False)
        console.print(tree.text(depth), markup=False, soft_wrap=True)
