"""`train`: a job, by a plan, from its first step or its last checkpoint to its end.

Real workers, and torch with them, are loaded when they are wanted: fake ones take the same way without.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rpeg.errors import InputError, RpegError, RunError
from rpeg.job import Job, dump_job
from rpeg.plan import Plan, check, device_lane, digest, read_plan, write_plan
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.driver import Driver
from rpeg.runtime.failure import WorkerFailed, error_text
from rpeg.runtime.limits import check_backends
from rpeg.runtime.lock import locked
from rpeg.runtime.record import StepRecord
from rpeg.runtime.recorder import Recorder, View
from rpeg.runtime.repair import Repairs
from rpeg.runtime.resuming import check_same_data, check_same_job
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.runtime.vigil import Vigil
from rpeg.runtime.work import Station
from rpeg.runtime.workers import Hosted, call_all
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
    """The run's directory, the plan to run by (None: still to be made) and the checkpoint to go on from.

    Raises InputError where an older run is in the way, or there is nothing to resume.
    """
    run = RunDirectory(Path(job.output))
    if not options.resume:
        if run.is_used and not options.overwrite:
            raise InputError(
                f"{run.path} holds a run. Go on with it: --resume. Begin anew: --overwrite. Or set another output."
            )
        return run, plan, None
    check_same_job(job, run.job)
    checkpoints = run.checkpoints()
    if not checkpoints:
        raise InputError(f"{run.path} holds no whole checkpoint to resume from; begin anew with --overwrite")
    if checkpoints[-1].steps >= job.steps:
        raise InputError(
            f"{run.path} has done {checkpoints[-1].steps} of {job.steps} steps: nothing is left. Raise steps to go on."
        )
    return run, plan or read_plan(run.plan), checkpoints[-1]


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

    def attempt(start: Checkpoint | None, options: Options) -> Outcome:
        crew = partial(_run, job, plan, run, start, options)
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
            start = next(reversed(run.checkpoints()), None)
            steps = start.steps if start else 0
            try:
                repairs = repairs.after(error.failure, steps)
            except RunError as refusal:
                raise RunError(f"{refusal}\n{error.report}") from None
            view.on_warning(
                f"{error.failure.text}: the run goes on from step {steps}, restart {repairs.done}"
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
    with locked(run.path):
        trace = _begin(job, plan, run, start, options, source)
        started = time.monotonic()
        with Recorder(view, job, run, start.steps if start else 0) as recorder:
            try:
                with asyncio.Runner(loop_factory=loop) as runner:
                    driver = runner.run(crew(trace, recorder))
            except WorkerFailed as error:
                report = f"{error.report}\n{_how_to_resume(run)}".lstrip()
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
    if run.plan.exists() and digest(read_plan(run.plan)) != digest(plan):
        raise InputError(
            f"{run.plan} is another plan than the one given; a run keeps its plan. Begin anew: --overwrite"
        )
    write_plan(plan, run.plan)
    run.job.write_text(dump_job(job))
    if source == "real":
        check_same_data(job, run.data)
    run.drop_metrics_from(first_step)
    run.drop_unfinished()
    return begin_stretch(run.path, source, job.steps, first_step, job.seed)


async def _run(
    job: Job,
    plan: Plan,
    run: RunDirectory,
    start: Checkpoint | None,
    options: Options,
    trace: Path,
    view: Recorder,
) -> Driver:
    from rpeg.runtime.in_process import HereHandle
    from rpeg.runtime.model_files import model_files
    from rpeg.runtime.ray_cluster import LOOPBACK, RayHandle, Seat, seats

    lanes = sorted({lane for a in plan.assignments for lane in a.all_lanes()})
    models = model_files(job, plan.graph)
    view.on_stage(f"starting {len(lanes)} workers")
    here = nullcontext(dict.fromkeys(lanes, Seat(LOOPBACK)))
    with here if options.in_process else seats(plan, lanes, options.address, trace) as places:
        beats = None if options.in_process else options.heartbeat_seconds
        addresses = {lane: seat.address for lane, seat in places.items()}
        handles: dict[str, Hosted] = {
            s.lane: HereHandle(s) if options.in_process else RayHandle(s, places[s.lane])
            for s in stations(job, plan, models, addresses, trace, start, beats)
        }
        work = drive(job, plan, run, start, trace, options, view, handles)
        try:
            if beats is None:
                return await work
            vigil = Vigil(trace, lanes, beats, options.predicted_bytes)
            return await vigil.over(work)
        except RpegError:
            raise
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except Exception as error:  # noqa: BLE001 - a worker that cannot start dies of anything
            raise RunError(error_text(error)) from None


async def drive(
    job: Job,
    plan: Plan,
    run: RunDirectory,
    start: Checkpoint | None,
    trace: Path,
    options: Options,
    view: Recorder,
    handles: Mapping[str, Hosted],
) -> Driver:
    """The run itself, on workers that are there."""
    devices = {lane: handle for lane, handle in handles.items() if not handle.station.is_host}
    broadcasts = await _ready(handles, devices, view, options.start_seconds)
    keep = Checkpoints(run, job.checkpoint.every, job.checkpoint.keep, job.seed)
    first_step = start.steps if start else 0
    driver = Driver(
        plan, job.steps, first_step, handles, broadcasts, trace, keep, view, options.stall_seconds
    )
    with interrupts(driver, view):
        await driver.run()
    if options.export and not driver.stopped_early:
        await _export(plan, run, devices, view)
    await call_all(handles, "close")
    return driver


async def _ready(
    handles: Mapping[str, Hosted], devices: Mapping[str, Hosted], view: Recorder, within_seconds: float
) -> dict[tuple[str, int], list[object]]:
    """Models loaded, groups formed, copies at their first versions; references to the parts of each (model, version)."""
    view.on_stage("loading models")
    call = partial(call_all, within_seconds=within_seconds)
    points = await call(handles, "meeting_point", doing="starting")
    meeting_point = next(points[lane] for lane, handle in devices.items() if handle.station.rank == 0)
    await call(handles, "prepare", meeting_point, doing="loading models")
    broadcasts: dict[tuple[str, int], list[object]] = {}
    for references in (await call(devices, "publish_initial", doing="publishing weights")).values():
        for version, part in references.items():
            broadcasts.setdefault(version, []).append(part)
    await call(devices, "receive_initial", broadcasts, doing="taking weights")
    view.on_running()
    return broadcasts


async def _export(plan: Plan, run: RunDirectory, devices: Mapping[str, Hosted], view: Recorder) -> None:
    """The first trained model with an lm head, as users load it elsewhere."""
    model = next((m.name for m in plan.graph.models if m.trainable and "lm" in m.heads), None)
    trainer = plan.graph.trainer(model) if model else None
    if model is None or trainer is None:
        return
    view.on_stage("writing the trained model")
    block = {lane: devices[lane] for lane in plan.assignment(trainer.name).all_lanes()}
    await call_all(block, "export", model, str(run.model))


def stations(
    job: Job,
    plan: Plan,
    models: Mapping[str, str],
    addresses: Mapping[str, str],
    trace: Path,
    start: Checkpoint | None,
    heartbeat_seconds: float | None,
) -> Iterator[Station]:
    """One for each lane that the plan uses; device workers are ranked by their device's number.

    addresses: of the node of each lane.
    """
    used = {i for a in plan.assignments for i in getattr(a.block, "ids", ())}
    by_rank = tuple(device_lane(i) for i in sorted(used))
    devices = {device_lane(i): i for i in used}
    for lane, address in addresses.items():
        index = devices.get(lane)
        kind = plan.cluster.device(index).kind.name if index is not None else "cpu"
        on_cpu = kind == "cpu"
        yield Station(
            name=lane,
            lane=lane,
            rank=by_rank.index(lane) if lane in devices else None,
            lanes_by_rank=by_rank,
            device="cpu" if on_cpu else "cuda:0",
            core=index if on_cpu else None,
            address=address,
            plan=plan,
            job=job,
            models=models,
            trace=trace.resolve(),
            first_step=start.steps if start else 0,
            checkpoint=start.path.resolve() if start else None,
            heartbeat_seconds=heartbeat_seconds,
        )


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


def _how_to_resume(run: RunDirectory) -> str:
    checkpoints = run.checkpoints()
    if not checkpoints:
        return f"No checkpoint was written yet; begin anew with --overwrite. The trace is in {run.path}."
    return f"The last checkpoint is after {checkpoints[-1].steps} steps; go on with: rpeg train --resume"
