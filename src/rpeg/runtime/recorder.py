"""Writes what a run reports to its directory and its loggers, raises alarms, and passes everything on to the view."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

from rpeg.job import Job
from rpeg.runtime.alarms import alarms
from rpeg.runtime.driver import Watcher
from rpeg.runtime.loggers import Loggers
from rpeg.runtime.record import StepRecord
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.trace import Entry, JsonLines


class View(Watcher, Protocol):
    """A watcher that is also told what happens before the first step."""

    def on_stage(self, text: str) -> None: ...

    def on_stopping(self, steps: int) -> None: ...


class Recorder:
    """A view between the driver and the user's view."""

    def __init__(self, view: View, job: Job, run: RunDirectory, first_step: int) -> None:
        self._view = view
        self._warned: set[str] = set()
        self._loggers = Loggers(job, run.path, first_step, self.on_warning)
        self._metrics, self._evaluations = JsonLines(run.metrics), JsonLines(run.evaluations)
        self._records: list[StepRecord] = []
        self.running_since = time.monotonic()

    def on_entry(self, entry: Entry) -> None:
        self._view.on_entry(entry)

    def on_step(self, record: StepRecord) -> None:
        line = record.to_json()
        self._metrics.write(line)
        self._loggers.log(record.step, line)
        self._records.append(record)
        self._view.on_step(record)
        for text in alarms(self._records):
            self.on_warning(text)

    def on_evaluation(self, step: int, accuracy: float, metrics: Mapping[str, float]) -> None:
        line = {"step": step, "accuracy": accuracy, **metrics}
        self._evaluations.write(line)
        self._loggers.log(step, {"eval/accuracy": accuracy, **metrics})
        self._view.on_evaluation(step, accuracy, metrics)

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        self._view.on_checkpoint(checkpoint)

    def on_warning(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._view.on_warning(text)

    def on_stage(self, text: str) -> None:
        self._view.on_stage(text)

    def on_running(self) -> None:
        self.running_since = time.monotonic()
        self._view.on_stage("running")

    def on_stopping(self, steps: int) -> None:
        self._view.on_stopping(steps)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metrics.close()
        self._evaluations.close()
        self._loggers.close()
