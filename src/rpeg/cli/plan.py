"""`rpeg plan`: which plan is best for a job, and what will it take?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rpeg.plan import Plan
    from rpeg.search import Candidate, Effect, Problem, Progress, Ranked

ORDER = 30


def command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.")],
    out: Annotated[Path, typer.Option(help="Where the best plan is kept.")] = Path("plan.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE.SVG", help="Draw one steady step: what devices do when."),
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Measure this machine if that was not done yet (needs torch).")
    ] = True,
    pick: Annotated[
        int | None,
        typer.Option(
            min=1, help="Keep the plan of this number, instead of the best or of the job's own layouts."
        ),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show every plan, not only the fastest.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Fixes the drawn lengths and the search.")
    ] = 0,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Plan again with a node more, faster links, a shorter tail and older weights (four times as long).",
        ),
    ] = False,
    search: Annotated[
        bool,
        typer.Option(
            help="On hardware that is not here: search structure, placement and layouts together; else only rank plans "
            "that people would write down."
        ),
    ] = True,
    chains: Annotated[
        int, typer.Option(min=1, max=256, help="Walks of the search, from different starts.")
    ] = 4,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="Structures that each walk anneals.")] = 4,
    steps: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="Steps of annealing in each structure.")
    ] = 12000,
) -> None:
    """Estimate the good plans for a job, rank them, and keep the best. Starts nothing.

    \b
    Examples:
      rpeg plan job.yaml
      rpeg plan job.yaml --out best.json     then: rpeg train job.yaml --plan best.json
      rpeg plan job.yaml --all --pick 8      another plan of the table, to compare with
      rpeg plan job.yaml --json              for programs: docs/planning.md has the fields
      rpeg plan job.yaml --picture plan.svg  one step, drawn
      rpeg plan job.yaml --sensitivity       what one more node, faster links, a shorter tail, staleness would bring
      rpeg plan job.yaml --rounds 20         a longer search
      rpeg plan job.yaml --no-search         a first look: only plans by construction
    """
    from rpeg.cli._planning import problem_of
    from rpeg.cli._ways_out import saying_ways_out
    from rpeg.errors import InfeasibleError, InputError
    from rpeg.job import load_job
    from rpeg.plan import write_plan
    from rpeg.search import Budget, plan_job

    for file in filter(None, (out, picture)):  # before the work, not after it
        if not file.absolute().parent.is_dir():
            raise InputError(f"{file} cannot be written: there is no directory {file.parent}")
        if file.is_dir():
            raise InputError(f"{file} cannot be written: it is a directory; name a file in it")
    job = load_job(job_file)
    problem = problem_of(job, lambda line: typer.echo(line, err=True), measure=measure)
    budget = Budget(chains, rounds, steps) if search and _searches(problem) else None
    with saying_ways_out(), _progress(as_json or budget is None) as report:
        ranked = plan_job(problem, seed=seed, budget=budget, report=report)
    if pick is not None and pick > len(ranked.candidates):
        raise InputError(f"there are {len(ranked.candidates)} plans; there is no plan {pick}")
    fits = pick is not None or ranked.own is None or ranked.own.candidate is not None
    chosen = ranked.candidates[(pick or 1) - 1] if pick or not fits else ranked.chosen
    if fits:
        write_plan(chosen.plan, out)
    if picture is not None:
        _draw(chosen.plan, problem, seed, picture)
    what_if: tuple[Effect, ...] = ()
    if sensitivity:
        what_if = _effects(problem, chosen, partial(plan_job, seed=seed, budget=budget), seed)
    if as_json:
        import json

        from rpeg.report.plan_json import ranked_json

        typer.echo(json.dumps(ranked_json(ranked, chosen, problem, what_if), indent=1))
    else:
        _show(ranked, chosen, problem, what_if, show_all)
    if not fits:
        raise InfeasibleError(ranked.why_not_own)
    if not as_json:
        typer.echo(f"{_which(pick, ranked)} is in {out}.")


def _searches(problem: Problem) -> bool:
    """Whether a search can be made; where one is missed says why there is none."""
    from rpeg.search.core.library import why_missing

    if problem.is_local:
        return False  # so few devices that the constructions are all there is
    why = "steps in rounds (dynamic sampling) are not searched" if problem.graph.selector else why_missing()
    if why:
        typer.echo(f"No search, plans are by construction: {why}.", err=True)
    return not why


def _draw(plan: Plan, problem: Problem, seed: int, file: Path) -> None:
    from rpeg.report.picture import picture_of, svg

    file.write_text(svg(picture_of(plan, problem.facts, seed)), encoding="utf-8")


def _effects(
    problem: Problem, chosen: Candidate, replan: Callable[[Problem], Ranked], seed: int
) -> tuple[Effect, ...]:
    from rich.console import Console

    from rpeg.search import sensitivity

    with Console(stderr=True).status("") as status:
        return sensitivity(
            problem, chosen, replan=replan, seed=seed, report=lambda words: status.update(f"with {words} …")
        )


def _which(pick: int | None, ranked: Ranked) -> str:
    if pick is not None:
        return f"Plan {pick}"
    return "The best plan" if ranked.own is None else "The plan that the job gives layouts for"


def _show(
    ranked: Ranked, chosen: Candidate, problem: Problem, what_if: tuple[Effect, ...], show_all: bool
) -> None:
    from rich.console import Console

    from rpeg.report.comparison import ranking
    from rpeg.report.plan import report as plan_report

    console = Console(highlight=False)
    for part in plan_report(ranked, chosen, problem, what_if):
        console.print(part)
    if show_all:
        console.print(ranking(ranked, chosen))


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A line that says how the search goes on, while it does."""
    if quiet:
        yield None
        return
    from rich.console import Console

    from rpeg.units import count_text, seconds_text

    with Console(stderr=True).status("looking at starts …") as status:

        def report(progress: Progress) -> None:
            best = (
                "none fits yet"
                if progress.best == float("inf")
                else f"best step {seconds_text(progress.best)}"
            )
            status.update(f"{count_text(progress.evaluations)} plans, {best}; {progress.where}")

        yield report
