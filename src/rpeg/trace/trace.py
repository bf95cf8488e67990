"""A trace: a plan, and what happened when it was simulated or run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rpeg.plan import Plan
from rpeg.trace.entry import Entry
from rpeg.trace.span import Span

Source = Literal["simulated", "fake", "real"]
"""Who did the work: a simulator, fake workers under the driver of real runs, or real workers."""


@dataclass(frozen=True)
class Trace:
    """One stretch of a run: steps first_step … steps - 1, without interruption.

    entries: the driver's log by `seq`. spans: the workers', in each worker's order.
    complete: whether the run reached its end; a stretch that was cut short proves what it contains.
    seed: of the run; with a step's number it says who is in which minibatch. None where the trace does not tell.
    """

    plan: Plan
    source: Source
    steps: int
    first_step: int
    entries: tuple[Entry, ...]
    spans: tuple[Span, ...]
    complete: bool = True
    seed: int | None = None
