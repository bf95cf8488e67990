"""Where the time of each lane goes, once the pipeline has filled.

A window begins at the end of one step's training and ends at that of another, so it holds whole steps. Each lane's
wall time in it is what its stages took and what it idled; that the two add up is computed, not assumed. This is
*scheduled* occupancy: a busy lane may still use its device badly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from rpeg.errors import InputError
from rpeg.trace import Span, Trace, fill_steps, step_ends
from rpeg.verify import on_driver_clock


@dataclass(frozen=True, slots=True)
class Window:
    """first_step: the first of its `steps` steps. Times are the driver's."""

    first_step: int
    steps: int
    start_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        return self.end_seconds - self.start_seconds


@dataclass(frozen=True, slots=True)
class LaneAccount:
    """A lane's time in a window. busy: (stage or transfer, seconds), the longest first."""

    lane: str
    wall_seconds: float
    busy: tuple[tuple[str, float], ...]
    idle_seconds: float

    @property
    def busy_seconds(self) -> float:
        return sum(seconds for _, seconds in self.busy)

    @property
    def occupancy(self) -> float:
        return self.busy_seconds / self.wall_seconds if self.wall_seconds else 0.0

    @property
    def unaccounted_seconds(self) -> float:
        """Wall time that is neither busy nor idle; below zero where items overlap. Zero in a sound trace."""
        return self.wall_seconds - self.busy_seconds - self.idle_seconds


def steady_window(trace: Trace, skip: int | None = None) -> Window:
    """All whole steps after the first `skip` (by default those of the fill, `fill_steps`).

    Raises InputError where no step is left.
    """
    ends = step_ends(trace)
    skipped = max(1, fill_steps(trace.plan) if skip is None else skip)
    steps = sorted(ends)
    if len(steps) <= skipped:
        raise InputError(
            f"the trace has trained {len(steps)} steps and the first {skipped} do not count: at least "
            f"{skipped + 1} are needed; run more steps" + (" or skip fewer" if skip is not None else "")
        )
    before = steps[skipped - 1]
    return Window(before + 1, len(steps) - skipped, ends[before], ends[steps[-1]])


def step_seconds(trace: Trace, window: Window) -> tuple[float, ...]:
    """Of each of a window's steps: from the end of training of the one before to its own."""
    ends = step_ends(trace)
    inside = [ends[step] for step in sorted(ends) if step >= window.first_step - 1]
    return tuple(after - before for before, after in pairwise(inside))


def lane_accounts(trace: Trace, window: Window) -> tuple[LaneAccount, ...]:
    """The account of every lane of the plan."""
    by_lane: dict[str, list[Span]] = {lane.name: [] for lane in trace.plan.order}
    for span in on_driver_clock(trace):
        by_lane.setdefault(span.lane, []).append(span)
    return tuple(_account(lane, spans, window) for lane, spans in by_lane.items())


def _account(lane: str, spans: Iterable[Span], window: Window) -> LaneAccount:
    busy: dict[str, float] = {}
    pieces: list[tuple[float, float]] = []
    for span in spans:
        start = max(span.start_seconds, window.start_seconds)
        end = min(span.end_seconds, window.end_seconds)
        if start < end:
            busy[span.item.name] = busy.get(span.item.name, 0.0) + end - start
            pieces.append((start, end))
    longest_first = tuple(sorted(busy.items(), key=lambda pair: (-pair[1], pair[0])))
    return LaneAccount(lane, window.seconds, longest_first, _gaps(pieces, window))


def _gaps(pieces: list[tuple[float, float]], window: Window) -> float:
    """Seconds of a window that no piece covers."""
    idle, covered = 0.0, window.start_seconds
    for start, end in sorted(pieces):
        idle += max(0.0, start - covered)
        covered = max(covered, end)
    return idle + max(0.0, window.end_seconds - covered)
