"""The real workers of one stretch: brought up, watched over while the driver drives them, and ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from rpeg.errors import RpegError, RunError
from rpeg.job import Job
from rpeg.plan import Plan, device_lane
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.driver import Driver
from rpeg.runtime.exporting import first_policy
from rpeg.runtime.failure import error_text
from rpeg.runtime.in_process import HereHandle
from rpeg.runtime.model_files import model_files
from rpeg.runtime.ray_cluster import LOOPBACK, RayHandle, Seat, ray_cluster, seats
from rpeg.runtime.recorder import Recorder
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.runtime.train import Options, interrupts
from rpeg.runtime.vigil import Vigil
from rpeg.runtime.work import Station
from rpeg.runtime.workers import Hosted, call_all, lost_among


def cluster_for(plan: Plan, options: Options) -> AbstractContextManager[str]:
    """What carries the workers, for as long as a run tries to go on; gives the address of this node."""
    return nullcontext(LOOPBACK) if options.in_process else ray_cluster(len(_lanes(plan)), options.address)


def _lanes(plan: Plan) -> list[str]:
    return sorted({lane for a in plan.assignments for lane in a.all_lanes()})


async def run_stretch(
    job: Job,
    plan: Plan,
    run: RunDirectory,
    start: Checkpoint | None,
    options: Options,
    cluster: Callable[[], str],
    trace: Path,
    view: Recorder,
) -> Driver:
    """Runs the steps on real workers, which are gone when it returns; the driver when it has ended."""
    lanes, models = _lanes(plan), model_files(job, plan.graph)
    view.on_stage(f"starting {len(lanes)} workers")
    address = cluster()
    here = nullcontext(dict.fromkeys(lanes, Seat(address)))
    beats = None if options.in_process else options.heartbeat_seconds
    with here if options.in_process else seats(plan, lanes, options.address, address, trace) as places:
        addresses = {lane: seat.address for lane, seat in places.items()}
        handles: dict[str, Hosted] = {
            s.lane: HereHandle(s) if options.in_process else RayHandle(s, places[s.lane])
            for s in stations(job, plan, models, addresses, trace, start, beats)
        }
        vigil = None
        if beats is not None:
            vigil = Vigil(trace, lanes, beats, options.predicted_bytes, partial(lost_among, handles))
        work = drive(job, plan, run, start, trace, options, view, handles, vigil)
        try:
            return await (work if vigil is None else vigil.over(work))
        except (RpegError, OSError):
            raise
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except Exception as error:  # noqa: BLE001 - a worker that cannot start dies of anything
            raise RunError(error_text(error)) from None
        finally:
            for handle in handles.values():
                handle.end()


async def drive(
    job: Job,
    plan: Plan,
    run: RunDirectory,
    start: Checkpoint | None,
    trace: Path,
    options: Options,
    view: Recorder,
    handles: Mapping[str, Hosted],
    vigil: Vigil | None = None,
) -> Driver:
    """The run itself, on workers that are there."""
    devices = {lane: handle for lane, handle in handles.items() if not handle.station.is_host}
    broadcasts = await _ready(handles, devices, view, options.start_seconds)
    keep = Checkpoints(run, job.checkpoint.every, job.checkpoint.keep, job.seed)
    first_step = start.steps if start else 0
    driver = Driver(
        plan, job.steps, first_step, handles, broadcasts, trace, keep, view, options.stall_seconds
    )
    if vigil is not None:
        vigil.driver = driver
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
    model = first_policy(plan.graph)
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
