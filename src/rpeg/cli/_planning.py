"""From a job to a problem with its calibration: what planning commands share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rpeg.cost import Calibration
    from rpeg.job import Job
    from rpeg.search import Problem


def problem_of(job: Job, say: Callable[[str], None], *, measure: bool = True) -> Problem:
    """The job's problem with the calibration of this machine: from the cache, else measured where torch is there.

    say: takes a line about what is measured or leaned on. measure: whether to measure where nothing is cached.
    """
    from rpeg import calibrate
    from rpeg.search import from_job

    return from_job(job, calibrate.memory_bytes(), calibration_of(job, say, measure=measure))


def calibration_of(job: Job, say: Callable[[str], None], *, measure: bool = True) -> Calibration | None:
    """None where nothing is cached and nothing can or shall be measured."""
    from rpeg import calibrate
    from rpeg.search import model_architecture, most_rows

    architecture = model_architecture(job, "actor")
    rows = max(job.batch.microbatch, most_rows(job))
    shapes = calibrate.Shapes(rows=rows, length=job.lengths.max_prompt + job.lengths.max_response)
    found = calibrate.cached(architecture, job.dtype, job.devices, shapes)
    if found is not None:
        return found
    if not measure or importlib.util.find_spec("torch") is None:
        say("This machine was not measured: the estimates lean on rooflines of advertised peaks.")
        return None
    say("Measuring this machine (about half a minute, once) …")
    return calibrate.measure(architecture, job.dtype, job.devices, shapes)
