"""`rpeg train`: runs a job by a plan."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from rpeg.job import Job
    from rpeg.plan import Plan
    from rpeg.report.compare import Comparison
    from rpeg.runtime import Outcome
    from rpeg.sim import Costs

ORDER = 40


def command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.")],
    plan_file: Annotated[
        Path | None,
        typer.Option("--plan", metavar="PLAN.JSON", help="A plan of `rpeg plan`. [default: the best]"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove an older run in the same place.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The run's directory, instead of the job's.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps, instead of the job's.")] = None,
    address: Annotated[
        str | None, typer.Option(help="A running Ray cluster to use. [default: start one here, on loopback]")
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Run in this process, without Ray; for plans of one device.")
    ] = False,
    fake: Annotated[
        str | None,
        typer.Option(
            "--fake",
            metavar="virtual|SCALE",
            help="Run on fake devices that only wait, as long as the cost model says: on a virtual clock, or SCALE "
            "seconds for each of its seconds (0.001). For jobs on hardware that is not here; trains nothing.",
        ),
    ] = None,
    stall_seconds: Annotated[
        float,
        typer.Option(
            min=1, help="Give up when nothing has happened for so long, and say who waits for whom."
        ),
    ] = 1800,
    heartbeat_seconds: Annotated[
        float,
        typer.Option(
            min=0.1, help="Take a worker for dead that has given no sign of life for so long, and end it."
        ),
    ] = 60,
    start_seconds: Annotated[
        float, typer.Option(min=1, help="Name the workers that have not come up after so long.")
    ] = 1800,
    restarts: Annotated[
        int,
        typer.Option(
            min=0, help="Go on from the last checkpoint so many times by itself, where a worker is lost."
        ),
    ] = 3,
) -> None:
    """Train a job by a plan; show the pipeline at work; prove the trace at the end.

    Ctrl-C writes a checkpoint and ends; a second one ends at once. A run that loses a worker goes on from its last
    checkpoint, unless that brings nothing; after anything else, --resume does.

    \b
    Examples:
      rpeg train job.yaml                       by the best plan for this machine
      rpeg train job.yaml --plan plan.json
      rpeg train job.yaml --resume              go on where the last checkpoint is
      rpeg train job.yaml --fake virtual        how the driver runs it on hardware that is not here
    """
    from rich.console import Console

    from rpeg.cli._fake import LABEL, pretended, scale_of
    from rpeg.cli._planning import check_is_for
    from rpeg.cli.main import INTERRUPTED
    from rpeg.errors import InputError
    from rpeg.job import load_job

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if resume and overwrite:
        raise InputError("--resume goes on with a run and --overwrite removes it; choose one")
    if in_process and address:
        raise InputError(f"--in-process runs here and --address on the Ray cluster at {address}; choose one")
    if in_process and fake:
        raise InputError("--in-process trains here and --fake trains nothing; choose one")
    scale = scale_of(fake) if fake is not None else None
    job = load_job(job_file)
    if fake is None:
        _check_runs_here(job, address)
    from rpeg.report.live import make_view
    from rpeg.runtime import Options, prepare_directory, train

    job = _job_with(job, output, steps, str(job_file))
    console = Console(highlight=False)
    options = Options(
        address,
        in_process,
        resume,
        overwrite,
        stall_seconds,
        heartbeat_seconds=heartbeat_seconds,
        start_seconds=start_seconds,
        restarts=restarts,
    )
    given = None
    if plan_file is not None:
        from rpeg.plan import check, read_plan

        given = check(read_plan(plan_file))
    run, plan, start = prepare_directory(job, given, options)
    if in_process and plan is None and job.devices > 1:
        raise InputError(
            f"--in-process runs one device in this process and the job has {job.devices}: set cluster: {{cpu: 1}}, or "
            "give a plan of one device: --plan"
        )
    if resume:
        for path in run.damaged():
            console.print(f"warning: {path} is damaged and passed over", markup=False)
        steps_done = (
            f"after {start.steps} steps" if start else "at the first step: there is no whole checkpoint"
        )
        console.print(f"going on {steps_done}", markup=False)
    if fake is None:
        _say_what_is_read(job, console)  # needs torch, as training does; fake devices do without
    plan = plan or _best_plan(job, console)
    check_is_for(plan, job)
    costs = None
    if fake is None:
        options = replace(options, predicted_bytes=_predicted_bytes(job, plan))
        with make_view(console, plan, job.steps, start.steps if start else 0) as view:
            outcome = train(job, plan, run, start, options, view)
    else:
        outcome, costs = pretended(job, plan, run, start, options, scale, console)
    proven = _show(job, plan, outcome, _predicted(job, plan, run.path, costs), console)
    if fake is not None:
        console.print(LABEL, markup=False)
    if not proven:
        raise typer.Exit(1)
    if not outcome.finished:
        raise typer.Exit(INTERRUPTED)


def _check_runs_here(job: Job, address: str | None) -> None:
    """InputError for a job that is for described hardware, where no cluster is named that may have it."""
    from rpeg.errors import InputError

    if job.is_local:
        return
    graph = job.algorithm.graph()
    lacking = [m.name for m in graph.models if job.models.source(m.name, planned=True).directory is None]
    if address is not None and not lacking:
        return
    weights = f" The weights of {', '.join(lacking)} are not on this machine either." if lacking else ""
    raise InputError(
        f"job {job.name} is for {job.hardware.name}, which is planned for and not run here.{weights} `rpeg plan` and "
        "`rpeg simulate` take it, `rpeg train --address` runs it on a Ray cluster that has such devices, and "
        "`rpeg train --fake virtual` on fake ones; to train on this machine, set cluster: {cpu: N} and a model that is "
        "here."
    )


def _job_with(job: Job, output: Path | None, steps: int | None, file: str) -> Job:
    """The job with what the command line says otherwise, held to the same rules."""
    from rpeg.job import dump_job, parse_job

    changes: dict[str, object] = {}
    if output is not None:
        changes["output"] = str(output.absolute())
    if steps is not None:
        changes["steps"] = steps
    return parse_job(dump_job(job.model_copy(update=changes)), file) if changes else job


def _say_what_is_read(job: Job, console: Console) -> None:
    """Reads tokenizer and prompts and tries the reward, so that what is wrong is known before any process starts."""
    from rpeg.backends.data import load_prompts, load_tokenizer, notes
    from rpeg.backends.reward import check_reward
    from rpeg.job.records import read_records

    tokenizer = load_tokenizer(job.models.source("actor"))
    for split in ("train", "heldout") if job.evaluation.every else ("train",):
        prompts = load_prompts(job, tokenizer, split)
        long = prompts.dropped - prompts.empty
        counts = {
            f"longer than {job.lengths.max_prompt} tokens dropped": long,
            "empty ones dropped": prompts.empty,
        }
        dropped = "".join(f", {count} {what}" for what, count in counts.items() if count)
        console.print(f"{split}: {len(prompts)} prompts{dropped}", markup=False)
        if split == "train":
            for note in notes(tokenizer, prompts.prompts, chat_template=job.data.chat_template):
                console.print(f"warning: {note}", markup=False)
    first = read_records(job.data.train, job.data.prompt, job.data.answer)[0]
    for reward in (*job.reward, *(job.evaluation.reward or ())):
        check_reward(reward, first.prompt, first.answer)


def _best_plan(job: Job, console: Console) -> Plan:
    from rpeg.cli._planning import problem_of
    from rpeg.cli._ways_out import saying_ways_out
    from rpeg.report.comparison import ranking
    from rpeg.search import plan_job

    problem = problem_of(job, lambda line: console.print(line, markup=False))
    with saying_ways_out():
        ranked = plan_job(problem)
    console.print(ranking(ranked, ranked.chosen, most=10))
    return ranked.chosen.plan


def _predicted_bytes(job: Job, plan: Plan) -> dict[str, float]:
    """The most memory that each device lane is predicted to hold; nothing where there is nothing to predict with."""
    from rpeg.cli._planning import problem_of
    from rpeg.errors import InputError
    from rpeg.plan import lower
    from rpeg.sim.memory import lane_memory

    try:
        facts = problem_of(job, lambda line: None, measure=False).facts
        phases = lane_memory(plan, lower(plan.graph, plan.assignments, plan.workload), facts)
    except InputError:
        return {}
    return {lane: max((memory.bytes for memory in held), default=0.0) for lane, held in phases.items()}


def _predicted(job: Job, plan: Plan, run: Path, costs: Costs | None = None) -> Comparison | None:
    """The plan simulated beside what was measured; None where there is nothing to predict with.

    costs: those of the machine's calibration without.
    """
    import shutil

    from rpeg.cli._planning import problem_of
    from rpeg.cli.compare import PREDICTED
    from rpeg.errors import InputError
    from rpeg.report.compare import compare, stretch_to_compare
    from rpeg.sim import StageCosts, simulate
    from rpeg.trace import read_traces, write_trace

    try:
        if costs is None:
            costs = StageCosts(plan, problem_of(job, lambda line: None, measure=False).facts)
        predicted = simulate(plan, costs, min(job.steps, 20), job.seed)
        shutil.rmtree(run / PREDICTED, ignore_errors=True)
        write_trace(predicted, run / PREDICTED)
        return compare(predicted, stretch_to_compare(read_traces(run)))
    except InputError:  # nothing to predict with, or a run too short to have a steady step
        return None


def _show(job: Job, plan: Plan, outcome: Outcome, comparison: Comparison | None, console: Console) -> bool:
    """Prints the end of the run; whether its trace is proven."""
    import json

    from rpeg.plan import device_lane
    from rpeg.report.chrome import chrome_trace
    from rpeg.report.summary import Ended, summary
    from rpeg.runtime import RunDirectory
    from rpeg.trace import read_traces
    from rpeg.verify import prove_run

    recorded = RunDirectory(outcome.directory).steps_recorded()
    traces = read_traces(outcome.directory)
    proof = prove_run(traces)
    (outcome.directory / "trace.json").write_text(
        json.dumps(chrome_trace(traces[-1])) + "\n", encoding="utf-8"
    )
    ended = Ended(
        job.name,
        outcome.directory,
        outcome.steps,
        job.steps,
        outcome.seconds,
        outcome.startup_seconds,
        [r["reward"] for r in recorded if r["reward"] is not None],
        {**{r["step"]: r["accuracy"] for r in recorded if r["accuracy"] is not None}, **outcome.evaluations},
        proof.text(),
        comparison,
        [device_lane(i) for i in range(len(plan.cluster))],
        sorted(path.name for path in outcome.directory.iterdir()),
    )
    console.print(summary(ended))
    if not outcome.finished:
        console.print(
            f"Stopped after {outcome.steps} steps. Go on with the same command and --resume.", markup=False
        )
    return proof.holds
