"""`Probe`: one op at one shape, and how it is timed.

An op that computes is timed by the processor time of its pinned process, which other processes on the machine do not
count into; what waits for others is timed by the clock.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from time import perf_counter, process_time


@dataclass
class Probe:
    """An op at a shape.

    run: makes one call; what it returns is ignored. before: puts everything in place for it, untimed.
    calls: so many in every round, for what waits for other workers, which make as many.
    context: what all calls run inside.
    seconds: the median of each round so far.
    """

    op: str
    shape: tuple[int, ...]
    run: Callable[[], object]
    before: Callable[[], object] | None = None
    calls: int | None = None
    context: Callable[[], AbstractContextManager[object]] = nullcontext
    seconds: list[float] = field(default_factory=list)

    def once(self) -> float:
        """Seconds of one call."""
        if self.before is not None:
            self.before()
        clock = process_time if self.calls is None else perf_counter
        start = clock()
        self.run()
        return clock() - start

    def round(self, budget_seconds: float, least: int = 2, most: int = 40) -> None:
        """One round: a call to warm up, then calls for about so long, unless it was long itself; the median is kept."""
        with self.context():
            times = [self.once()]
            if self.calls is not None:
                times = [self.once() for _ in range(self.calls)]
            elif times[0] < budget_seconds * 2:
                times = []
                while len(times) < least or (sum(times) < budget_seconds and len(times) < most):
                    times.append(self.once())
        self.seconds.append(statistics.median(times))

    @property
    def median_seconds(self) -> float:
        """The median over rounds: slow phases of the host are shorter than a calibration."""
        return statistics.median(self.seconds)


def rounds(probes: Sequence[Probe], count: int, budget_seconds: float) -> None:
    """All probes one after another, `count` times, so that a slow phase of the machine does not hit one of them."""
    for _ in range(count):
        for probe in probes:
            probe.round(budget_seconds)
