"""Where metrics go beside the console and metrics.jsonl: one file each, named as in the job file's `loggers`.

A file has `open_logger(job, run, first_step) -> Logger`. None of them may end a run: a logger that fails is left out from
then on, and the watcher is told.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeGuard

from rpeg.errors import InputError
from rpeg.job import Job


class Logger(Protocol):
    """An open log."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers of a step, all finite."""
        ...

    def close(self) -> None: ...


class Loggers:
    """All of a run's."""

    def __init__(self, job: Job, run: Path, first_step: int, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._open: dict[str, Logger] = {}
        for name in job.loggers:
            opened = _opened(name, job, run, first_step, warn)
            if opened is not None:
                self._open[name] = opened

    def log(self, step: int, metrics: Mapping[str, object]) -> None:
        """Takes the finite numbers among the metrics."""
        numbers = {name: value for name, value in metrics.items() if _is_number(value)}
        for name, logger in list(self._open.items()):
            try:
                logger.log(step, numbers)
            except Exception as error:  # noqa: BLE001  (whatever other people's clients raise)
                self._drop(name, error)

    def close(self) -> None:
        for name, logger in list(self._open.items()):
            try:
                logger.close()
            except Exception as error:  # noqa: BLE001
                self._drop(name, error)
        self._open.clear()

    def _drop(self, name: str, error: Exception) -> None:
        del self._open[name]
        self._warn(f"{name} fails and gets no more metrics: {type(error).__name__}: {error}")


def _opened(name: str, job: Job, run: Path, first_step: int, warn: Callable[[str], None]) -> Logger | None:
    """InputError where the package is missing; None where it cannot be opened for another reason."""
    module = importlib.import_module(f"{__name__}.{name}")
    try:
        logger: Logger = module.open_logger(job, run, first_step)
    except ModuleNotFoundError as error:
        raise InputError(
            f"loggers: {name} is not installed ({error.name} is missing): pip install {module.PACKAGE}, "
            "or take it out of the job"
        ) from None
    except Exception as error:  # noqa: BLE001
        warn(f"{name} gets no metrics: {type(error).__name__}: {error}")
        return None
    return logger


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
