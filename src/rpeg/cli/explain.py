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
    stage: Annotated[
        list[str] | None,
        typer.Option("--stage", metavar="STAGE", help="Only the trees of this stage (repeat for more)."),
    ] = None,
    phase: Annotated[
        str | None, typer.Option("--phase", help="Take the memory of this phase apart, not of the fullest.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Fixes the drawn lengths.")] = 0,
) -> None:
    """Print where a plan's seconds and bytes go: stages, what limits the step, memory by phase, cost trees.

    Parts of a tree add up to what they are indented under (or say how else), and replicas that cost the same are one
    line. The trees are of one drawn step.

    \b
    Examples:
      rpeg explain plan.json --job job.yaml
      rpeg explain plan.json --job job.yaml --stage train_actor --depth 8
      rpeg explain plan.json --job job.yaml --depth 0 --phase update
    """
    from itertools import chain

    from rich.console import Console
    from rich.text import Text

    from rpeg.cli._planning import check_is_for, problem_of, say_what_lacks
    from rpeg.job import load_job
    from rpeg.plan import check, read_plan
    from rpeg.report import explained, limits, trees
    from rpeg.report.tables import facts
    from rpeg.sim import Draws, StageCosts, estimate, stage_trees

    plan = check(read_plan(plan_file))
    job = load_job(job_file)
    check_is_for(plan, job)
    problem = problem_of(job, lambda line: typer.echo(line, err=True))
    draws = Draws(plan.workload, seed)
    found = estimate(plan, problem.facts, seed=seed, draws=draws)
    say_what_lacks(plan, found.memory, lambda line: typer.echo(line, err=True))
    shown = explained.trees_of(plan, stage_trees(plan, StageCosts(plan, problem.facts), draws), stage or ())
    console = Console(highlight=False)
    if stage is None:
        console.print(explained.stages(found))
        console.print(Text())
        lines = limits.critical(found, plan), limits.idle(found, plan), limits.bounds(found)
        console.print(facts(zip(("limits", "idle", "bounds"), lines, strict=True)))
        held = explained.memory(found.memory, console.width), explained.parts(found.memory, phase)
        for table in chain(*held):
            console.print(Text())
            console.print(table)
    for name, tree in shown.items():
        console.print(f"\n{explained.title(name)}", markup=False)
        console.print(trees.tree(tree, depth))
    console.print(Text(f"\n{trees.LEGEND}"))
