"""What was predicted beside what was measured, stage by stage and lane by lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from rpeg.errors import InputError
from rpeg.plan import ItemKind, digest
from rpeg.report.occupancy import (
    LaneAccount,
    Window,
    lane_accounts,
    steady_window,
    step_seconds,
)
from rpeg.trace import Trace, fill_steps, step_ends
from rpeg.units import seconds_text


@dataclass(frozen=True, slots=True)
class Pair:
    """The same quantity predicted and measured, in seconds; None where one side has none."""

    predicted: float | None
    measured: float | None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1: 0.1 is predicted 10 % too long."""
        if self.predicted is None or not self.measured:
            return None
        return self.predicted / self.measured - 1

    def to_json(self) -> dict[str, float | None]:
        return {"predicted_seconds": self.predicted, "measured_seconds": self.measured, "error": self.error}


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage, or a transfer by its edge: median seconds a step on the lane that it keeps busiest."""

    name: str
    is_transfer: bool
    seconds: Pair


@dataclass(frozen=True, slots=True)
class LaneRow:
    """A lane's accounts of its steady steps."""

    lane: str
    predicted: LaneAccount
    measured: LaneAccount


@dataclass(frozen=True, slots=True)
class Comparison:
    """step: median seconds of a step. stages: longest measured first. windows: the steps that were compared."""

    step: Pair
    stages: tuple[StageRow, ...]
    lanes: tuple[LaneRow, ...]
    predicted_window: Window
    measured_window: Window

    def to_json(self) -> dict[str, Any]:
        return {
            "step": {
                **self.step.to_json(),
                "predicted_steps": self.predicted_window.steps,
                "measured_steps": self.measured_window.steps,
            },
            "stages": [
                {"name": row.name, "transfer": row.is_transfer, **row.seconds.to_json()}
                for row in self.stages
            ],
            "lanes": [
                {
                    "lane": row.lane,
                    "predicted": _account_json(row.predicted, self.predicted_window),
                    "measured": _account_json(row.measured, self.measured_window),
                }
                for row in self.lanes
            ],
        }


def compare(predicted: Trace, measured: Trace, skip: int | None = None) -> Comparison:
    """Joins a simulated and a real trace of one plan over their steady steps.

    skip: steps at the start that do not count, by default those in which the pipeline fills. Raises InputError where
    the plans differ or no steady step is left.
    """
    if digest(predicted.plan) != digest(measured.plan):
        raise InputError(
            f"the prediction is of plan {digest(predicted.plan)[:12]} and the run of plan "
            f"{digest(measured.plan)[:12]}; compare a run with the prediction of its own plan"
        )
    windows = [steady_window(trace, skip) for trace in (predicted, measured)]
    before, after = (stage_seconds(t, w) for t, w in zip((predicted, measured), windows, strict=True))
    transfers = {item.name for item in (s.item for s in measured.spans) if item.kind is ItemKind.TRANSFER}
    rows = [
        StageRow(name, name in transfers, Pair(before.get(name), after.get(name)))
        for name in dict.fromkeys((*before, *after))
    ]
    rows.sort(key=lambda row: (-(row.seconds.measured or 0.0), row.name))
    steps = [median(step_seconds(t, w)) for t, w in zip((predicted, measured), windows, strict=True)]
    accounts = zip(lane_accounts(predicted, windows[0]), lane_accounts(measured, windows[1]), strict=True)
    lanes = tuple(LaneRow(p.lane, p, m) for p, m in accounts)
    return Comparison(Pair(*steps), tuple(rows), lanes, *windows)


def stage_seconds(trace: Trace, window: Window) -> Mapping[str, float]:
    """Median over a window's steps of each stage's and transfer's seconds, on the lane that it keeps busiest.

    A stage that fires every n steps counts in the steps in which it does.
    """
    last = window.first_step + window.steps - 1
    busy: dict[str, dict[int, dict[str, float]]] = {}
    for span in trace.spans:
        if window.first_step <= span.item.step <= last:
            lanes = busy.setdefault(span.item.name, {}).setdefault(span.item.step, {})
            lanes[span.lane] = lanes.get(span.lane, 0.0) + span.seconds
    return {name: median(max(lanes.values()) for lanes in steps.values()) for name, steps in busy.items()}


def stretch_to_compare(traces: tuple[Trace, ...]) -> Trace:
    """The latest stretch of a run that has a steady step, else the latest. Raises InputError for none."""
    if not traces:
        raise InputError("there is no trace to compare")
    steady = [trace for trace in traces if len(step_ends(trace)) > max(1, fill_steps(trace.plan))]
    return (steady or list(traces))[-1]


def comparison_table(comparison: Comparison) -> RenderableType:
    """Two tables: stages with the whole step first, and lanes with where their time went."""
    return Group(_stage_table(comparison), _lane_table(comparison))


def _stage_table(comparison: Comparison) -> Table:
    table = Table(
        title=f"Median seconds a step, {comparison.measured_window.steps} steps measured",
        title_justify="left",
    )
    for name in ("stage", "predicted", "measured", "error"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    table.add_row("[bold]whole step", *_cells(comparison.step), end_section=True)
    for row in comparison.stages:
        table.add_row(escape(("transfer " if row.is_transfer else "") + row.name), *_cells(row.seconds))
    return table


def _lane_table(comparison: Comparison) -> Table:
    table = Table(
        title="Where a lane's time goes (scheduled occupancy, not utilisation)", title_justify="left"
    )
    for name in ("lane", "predicted busy", "measured busy", "idle", "unaccounted"):
        table.add_column(name, justify="left" if name == "lane" else "right")
    steps = comparison.measured_window.steps
    for row in comparison.lanes:
        account = row.measured
        table.add_row(
            escape(row.lane),
            f"{row.predicted.occupancy:.0%}",
            f"{account.occupancy:.0%}",
            seconds_text(account.idle_seconds / steps),
            _share(account.unaccounted_seconds, account.wall_seconds),
        )
    return table


def _cells(pair: Pair) -> tuple[str, str, str]:
    error = "–" if pair.error is None else f"{pair.error:+.0%}"
    return _time(pair.predicted), _time(pair.measured), error


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else seconds_text(seconds)


def _share(part: float, whole: float) -> str:
    return f"{abs(part) / whole:.1%}" if whole else "–"


def _account_json(account: LaneAccount, window: Window) -> dict[str, Any]:
    """Seconds a step."""
    steps = window.steps
    return {
        "occupancy": account.occupancy,
        "wall_seconds": account.wall_seconds / steps,
        "idle_seconds": account.idle_seconds / steps,
        "unaccounted_seconds": account.unaccounted_seconds / steps,
        "busy_seconds": {name: seconds / steps for name, seconds in account.busy},
    }
