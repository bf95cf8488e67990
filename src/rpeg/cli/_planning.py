"""From a job to a problem with its calibration: what planning commands share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rpeg.architecture import Architecture
    from rpeg.calibrate import Shapes
    from rpeg.cost import Calibration
    from rpeg.job import Job
    from rpeg.plan import Plan
    from rpeg.search import Problem
    from rpeg.sim import DeviceMemory


def problem_of(job: Job, say: Callable[[str], None], *, measure: bool = True) -> Problem:
    """The job's problem with the calibration of this machine: from the cache, else measured where torch is there.

    say: takes a line about what is measured or leaned on. measure: whether to measure where nothing is cached.
    """
    from rpeg import calibrate
    from rpeg.search import from_job

    if not job.is_local:  # described hardware: nothing of this machine plays a part
        return from_job(job, 0)
    return from_job(job, calibrate.memory_bytes(), calibration_of(job, say, measure=measure))


def calibration_of(job: Job, say: Callable[[str], None], *, measure: bool = True) -> Calibration | None:
    """None where nothing is cached and nothing can or shall be measured."""
    from rpeg import calibrate
    from rpeg.errors import RunError

    architecture, shapes = _measured_for(job)
    found = calibrate.cached(architecture, job.dtype, job.devices, shapes)
    if found is not None:
        return found
    if not measure or importlib.util.find_spec("torch") is None:
        say("This machine was not measured: the estimates lean on rooflines of advertised peaks.")
        return None
    try:
        return measure_for(job, say)
    except RunError as error:  # planning goes on without, and its report says on what it rests
        say(f"{error}\nThe estimates lean on rooflines of advertised peaks instead.")
        return None


def measure_for(job: Job, say: Callable[[str], None]) -> Calibration:
    """Measures this machine for a job's models and keeps it in the cache."""
    from rpeg import calibrate

    say("Measuring this machine (about half a minute, once) …")
    architecture, shapes = _measured_for(job)
    return calibrate.measure(architecture, job.dtype, job.devices, shapes)


def _measured_for(job: Job) -> tuple[Architecture, Shapes]:
    """The model and the shapes that a calibration must cover."""
    from rpeg.calibrate import Shapes
    from rpeg.search import model_architecture, most_rows

    rows = max(job.batch.microbatch, most_rows(job))
    length = job.lengths.max_prompt + job.lengths.max_response
    return model_architecture(job, "actor"), Shapes(rows=rows, length=length)


def check_is_for(plan: Plan, job: Job) -> None:
    """Raises InputError where a plan was made for another job: it would train something else than this one says."""
    from rpeg.errors import InputError
    from rpeg.search import permissions_of
    from rpeg.transforms import Changes, parse, parse_all

    w, b = plan.workload, job.batch
    planned = (w.prompts, w.samples_per_prompt, w.minibatches, w.epochs)
    asked = (b.prompts, b.samples_per_prompt, b.minibatches, b.epochs)
    if planned != asked:
        raise InputError(
            f"the plan is for {planned[0]} × {planned[1]} samples in {planned[2]} minibatches and {planned[3]} epochs, "
            f"the job has {asked[0]} × {asked[1]} in {asked[2]} and {asked[3]}; make a plan for this job: rpeg plan"
        )
    if not job.is_local and plan.cluster != job.hardware:
        raise InputError(
            f"the plan is for {plan.cluster.name} and the job for {job.hardware.name} (or the two differ in links or "
            "prices); make a plan for this job: rpeg plan"
        )
    if len(plan.cluster) != job.devices:
        raise InputError(
            f"the plan is for {len(plan.cluster)} devices and the job has {job.devices}; "
            "make a plan for this job: rpeg plan"
        )
    _check_graph(plan, job)
    stale = [t for t in plan.applied if parse(t).changes is Changes.STALENESS]
    delays = [e.delay - 1 for e in plan.graph.edges if e.model is not None]
    if max(delays, default=0) > job.allow.staleness:
        raise InputError(
            f"the plan uses staleness {max(delays)} ({', '.join(stale)}) and the job allows {job.allow.staleness}; "
            f"set allow.staleness to {max(delays)} or take another plan"
        )
    refused = permissions_of(job).refused(parse_all(plan.applied))
    if refused:
        raise InputError(
            f"the plan uses {refused[0]}, which changes what is learned, and the job does not allow it; "
            f"set allow.{refused[0].key} or take another plan"
        )


def say_what_lacks(plan: Plan, memory: Sequence[DeviceMemory], say: Callable[[str], None]) -> None:
    """One line where a plan does not fit: the device or host that is furthest beyond its memory."""
    from rpeg.search import lack

    short = max(memory, key=lambda m: m.short_bytes)
    if short.short_bytes:
        say(f"warning: the plan {lack(plan, short)}")


def _check_graph(plan: Plan, job: Job) -> None:
    """A plan's graph is the algorithm's, changed by the transforms that the plan names and by nothing else."""
    import difflib

    from rpeg.errors import InputError
    from rpeg.text import text
    from rpeg.transforms import parse_all

    graph = job.graph()
    for transform in parse_all(plan.applied):
        graph = transform.apply(graph)
    if graph != plan.graph:
        lines = difflib.ndiff(text(graph).splitlines(), text(plan.graph).splitlines())
        first = [line for line in lines if line[:1] in "+-"][:4]
        raise InputError(
            f"the plan's graph is not {job.algorithm.name}'s under {', '.join(plan.applied) or 'no transform'} "
            "(- the job's, + the plan's):"
            + "".join(f"\n  {line}" for line in first)
            + "\nmake a plan for this job: rpeg plan"
        )
