"""What a person wants to know when a run has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from rich.markup import escape
from rich.table import Table

from rpeg.report.compare import Comparison
from rpeg.report.step_lines import sparkline
from rpeg.units import seconds_text

MANY = 16
"""Devices beyond which their occupancy is told as a range."""

ENDS = 10
"""Steps at either end of a run that its first and last reward are the mean of."""


@dataclass(frozen=True)
class Ended:
    """A run that has ended. rewards: of all its steps, before a resume too. evaluations: accuracy by steps done before.

    proof: what its trace proves, in words. comparison: None where no steady step was measured.
    """

    name: str
    directory: Path
    steps: int
    asked: int
    seconds: float
    startup_seconds: float
    rewards: Sequence[float]
    evaluations: Mapping[int, float]
    proof: str
    comparison: Comparison | None
    devices: Sequence[str]
    files: Sequence[str] = ()


def summary(ended: Ended) -> Table:
    """The end of a run as a two-column table."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for what, text in _rows(ended):
        table.add_row(what, escape(text))
    return table


def reward_ends(rewards: Sequence[float]) -> tuple[float, float] | None:
    """Mean reward of the first and of the last `ENDS` steps (of half the steps where there are fewer)."""
    if not rewards:
        return None
    count = max(1, min(ENDS, len(rewards) // 2))
    return mean(rewards[:count]), mean(rewards[-count:])


def _rows(ended: Ended) -> Iterator[tuple[str, str]]:
    took = f"{seconds_text(ended.startup_seconds)} to start, {seconds_text(ended.seconds - ended.startup_seconds)} since"
    yield "run", f"{ended.name}: {ended.steps} of {ended.asked} steps; {took}"
    ends = reward_ends(ended.rewards)
    if ends is not None:
        curve = sparkline(list(ended.rewards), 40)
        yield "reward", f"{ends[0]:.3f} → {ends[1]:.3f}  {curve}"
    first, last = min(ended.evaluations, default=0), max(ended.evaluations, default=0)
    if first < last:
        before, after = ended.evaluations[first], ended.evaluations[last]
        yield "held-out accuracy", f"{before:.3f} after {first} steps → {after:.3f} after {last} steps"
    if ended.comparison is not None:
        yield from _times(ended.comparison, ended.devices)
    yield "trace", ended.proof
    yield "files", f"{ended.directory}: {', '.join(ended.files)}"
    yield (
        "next",
        f"rpeg compare {ended.directory} · rpeg verify {ended.directory} · rpeg trace {ended.directory}",
    )


def _times(comparison: Comparison, devices: Sequence[str]) -> Iterator[tuple[str, str]]:
    predicted, measured, error = comparison.step.predicted, comparison.step.measured, comparison.step.error
    if predicted is not None and measured is not None and error is not None:
        yield (
            "step time",
            f"{seconds_text(predicted)} predicted, {seconds_text(measured)} measured ({error:+.0%})",
        )
    rows = [row for row in comparison.lanes if row.lane in devices]
    rows.sort(key=lambda row: (len(row.lane), row.lane))  # device2 before device10
    shares = [f"{row.lane} {row.measured.occupancy:.0%}" for row in rows]
    if comparison.measured_window.steps <= 2 or not shares:
        return
    if len(shares) > MANY:
        occupied = [row.measured.occupancy for row in rows]
        yield "occupancy", f"{min(occupied):.0%} – {max(occupied):.0%} of {len(shares)} devices"
    else:
        yield "occupancy", ", ".join(shares)
