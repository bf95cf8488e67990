"""`train`: a job, by a plan, from its first step or its last checkpoint to its end.

Real workers, and torch with them, are loaded when they are wanted: fake ones take the same way without.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from rpeg.backends.disk import disk_trouble
from rpeg.errors import InputError, RunError
from rpeg.job import Job, dump_job
from rpeg.plan import Plan, check, digest, read_plan, write_plan
from rpeg.runtime.driver import Driver
from rpeg.runtime.failure import WorkerFailed
from rpeg.runtime.limits import check_backends
from rpeg.runtime.lock import locked
from rpeg.runtime.record import StepRecord
from rpeg.runtime.recorder import Recorder, View
from rpeg.runtime.repair import Repairs
from rpeg.runtime.resuming import check_same_data, check_same_job, check_same_work
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.sim.runnable import check_adapters, check_runnable
from rpeg.trace import Source, begin_stretch, end_stretch, sources

DEFAULT_STALL_SECONDS = 1800.0
DEFAULT_HEARTBEAT_SECONDS = 60.0
"""Longer than any call that keeps Python from running its other threads, such as importing a library from a slow disk."""
DEFAULT_START_SECONDS = 1800.0
DEFAULT_RESTARTS = 3


@dataclass(frozen=True)
class Outcome:
    """How a run ended. steps: done in all. evaluations: accuracy by the number of steps before it.

    seconds: of this stretch, of which startup_seconds until the first item could run.
    """

    directory: Path
    trace: Path
    first_step: int
    steps: int
    finished: bool
    records: tuple[StepRecord, ...]
    evaluations: Mapping[int, float]
    seconds: float
    startup_seconds: float


@dataclass(frozen=True)
class Options:
    """address: of a Ray cluster; None starts one here. in_process: no Ray, one device, all workers in this process.

    resume: from the last checkpoint. overwrite: an older run. stall_seconds: without any event, after which it gives up.
    heartbeat_seconds: of silence, after which a worker is taken for dead. start_seconds: for each stage of a start.
    restarts: how often a run that lost a worker goes on by itself. predicted_bytes: of memory, by lane, for messages.
    """

    address: str | None = None
    in_process: bool = False
    resume: bool = False
    overwrite: bool = False
    stall_seconds: float = DEFAULT_STALL_SECONDS
    export: bool = True
    heartbeat_seconds: float = DEFAULT_HEARTBEAT_SECONDS
    start_seconds: float = DEFAULT_START_SECONDS
    restarts: int = DEFAULT_RESTARTS
    predicted_bytes: Mapping[str, float] = field(default_factory=dict)


def prepare_directory(
    job: Job, plan: Plan | None, options: Options
) -> tuple[RunDirectory, Plan | None, Checkpoint | None]:
    """The run's directory, the plan to run by (None: still to be made) and the checkpoint to go on from; None of a run
    that has none yet, which goes on from its first step.

    Raises InputError where an older run is in the way, or there is nothing to resume.
    """
    run = RunDirectory(Path(job.output))
    if not options.resume:
        if run.is_used and not options.overwrite:
            raise InputError(
                f"{run.path} holds a run. Go on with it: --resume. Begin anew: --overwrite. Or set another output."
            )
        return run, plan, None
    if not run.plan.exists():
        raise InputError(f"{run.path} holds no run to resume; leave --resume out to begin one")
    check_same_job(job, run.job)
    last = run.last_checkpoint
    if last is None and (damaged := run.damaged()):
        raise InputError(
            f"{damaged[-1]} is damaged, and there is no whole checkpoint in {run.path}. Restore one; or remove what is "
            "damaged, and --resume begins at the first step"
        )
    if last is not None and last.steps >= job.steps:
        raise InputError(
            f"{run.path} has done {last.steps} of {job.steps} steps: nothing is left. Raise steps to go on."
        )
    return run, plan or read_plan(run.plan), last


Crew = Callable[[Path, Recorder], Coroutine[Any, Any, Driver]]
"""Runs the steps on some workers, given the stretch's directory and who is told; the driver when it has ended."""


def train(
    job: Job, plan: Plan, run: RunDirectory, start: Checkpoint | None, options: Options, view: View
) -> Outcome:
    """Runs the job. Raises InputError before anything starts, RunError where the run broke off."""
    check(plan)
    check_backends(plan, calls_tools=job.tools is not None)
    architectures = {m.name: job.models.source(m.name).architecture() for m in plan.graph.models}
    check_runnable(plan, architectures)
    if job.lora is not None:
        check_adapters(job.lora.targets, (architectures[m.name] for m in plan.graph.models if m.trainable))
    if options.in_process:
        from rpeg.runtime.in_process import check_is_for_one_process

        check_is_for_one_process(plan)
    from rpeg.runtime.crew import cluster_for, run_stretch

    with ExitStack() as stack:
        cluster = cache(lambda: stack.enter_context(cluster_for(plan, options)))

        def attempt(start: Checkpoint | None, options: Options) -> Outcome:
            crew = partial(run_stretch, job, plan, run, start, options, cluster)
            return conduct(job, plan, run, start, options, view, "real", crew)

        return repaired(attempt, run, start, options, view)


def repaired(
    attempt: Callable[[Checkpoint | None, Options], Outcome],
    run: RunDirectory,
    start: Checkpoint | None,
    options: Options,
    view: View,
) -> Outcome:
    """The outcome of an attempt that loses no worker, each from the last checkpoint of the one before."""
    repairs = Repairs(0 if options.in_process else options.restarts)
    while True:
        try:
            return attempt(start, options)
        except WorkerFailed as error:
            start = run.last_checkpoint
            steps = start.steps if start else 0
            try:
                repairs = repairs.after(error.failure, steps)
            except RunError as refusal:
                raise RunError(f"{refusal}\n{error.report}") from None
            view.on_warning(
                f"{error.failure.text}: the run goes on after {steps} steps, restart {repairs.done}"
            )
            options = replace(options, overwrite=False)


def conduct(
    job: Job,
    plan: Plan,
    run: RunDirectory,
    start: Checkpoint | None,
    options: Options,
    view: View,
    source: Source,
    crew: Crew,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Outcome:
    """A stretch of a run from its directory's beginning to its outcome, whoever does the work. Raises as `train` does."""
    with locked(run.path), _disk_troubles_told():
        trace = _begin(job, plan, run, start, options, source)
        started = time.monotonic()
        with Recorder(view, job, run, start.steps if start else 0) as recorder:
            try:
                with asyncio.Runner(loop_factory=loop) as runner:
                    driver = runner.run(crew(trace, recorder))
            except WorkerFailed as error:
                report = f"{error.report}\n{_how_to_resume(run)}".lstrip("\n")
                raise WorkerFailed(error.failure, report) from None
            except RunError as error:
                raise RunError(f"{error}\n{_how_to_resume(run)}") from None
            except asyncio.CancelledError:
                raise KeyboardInterrupt from None
        if not driver.stopped_early:
            end_stretch(trace)
    first_step = start.steps if start else 0
    return Outcome(
        run.path,
        trace,
        first_step,
        first_step + len(driver.records),
        not driver.stopped_early,
        tuple(driver.records),
        dict(driver.evaluations),
        time.monotonic() - started,
        recorder.running_since - started,
    )


def _begin(
    job: Job, plan: Plan, run: RunDirectory, start: Checkpoint | None, options: Options, source: Source
) -> Path:
    """Writes what a run begins with; the directory of its new stretch."""
    first_step = start.steps if start else 0
    if start is None and options.overwrite:
        run.clear()
    other = next((before for before in sources(run.path) if before != source), None)
    if other is not None:
        raise InputError(
            f"{run.path} holds a run on {other} devices and this one would be on {source} ones; set another output, or "
            "begin anew: --overwrite"
        )
    if run.plan.exists() and digest(kept := read_plan(run.plan)) != digest(plan):
        check_same_work(plan, kept, run.plan)
        run.keep_plan_of_stretches()
    write_plan(plan, run.plan)
    run.job.write_text(dump_job(job))
    if source == "real":
        check_same_data(job, run.data)
    run.drop_metrics_from(first_step)
    run.drop_unfinished()
    return begin_stretch(run.path, source, job.steps, first_step, job.seed)


@contextmanager
def interrupts(driver: Driver, view: Recorder) -> Iterator[None]:
    """The first Ctrl-C asks for a checkpoint and an end, the second ends at once."""
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()

    def stop() -> None:
        if driver.is_stopping and main is not None:
            main.cancel()
        else:
            view.on_stopping(driver.request_stop())

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextmanager
def _disk_troubles_told() -> Iterator[None]:
    """RunError, with the file, where the run's directory cannot be written to."""
    try:
        yield
    except OSError as error:
        raise RunError(f"cannot write {disk_trouble(error)}; go on with: rpeg train --resume") from error


def _how_to_resume(run: RunDirectory) -> str:
    last = run.last_checkpoint
    if last is None:
        return "No checkpoint was written yet; begin again at the first step with: rpeg train --resume"
    return f"The last checkpoint is after {last.steps} steps; go on with: rpeg train --resume"
