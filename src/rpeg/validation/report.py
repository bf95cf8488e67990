"""A validation as tables for a terminal, with the worst records and where their predicted time goes."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import shorten

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rpeg.errors import InputError
from rpeg.units import bytes_text, seconds_text
from rpeg.validation.evaluate import Predict, explained
from rpeg.validation.outcome import Kind, Outcome
from rpeg.validation.statistics import Fits
from rpeg.validation.summary import Group, Summary

_FIGURES = ("predicted", "MAPE", "median", "p90", "bias", "rank", "order")
_REASON_WIDTH = 160
LEGEND = (
    "MAPE, median, p90: magnitude of (predicted − measured) / measured. bias: its mean with the sign. rank: Spearman's",
    "correlation. order: pairs more than 10 % apart that are predicted in the right order. Suspect records are left out.",
)
_ROW_FIELDS = (
    *("id", "source", "kind", "setting", "unit", "measured", "predicted", "error", "core", "suspect"),
    *("fits", "predicted_fits", "confirmed", "reason"),
)


def report(
    summary: Summary, worst: int = 5, depth: int = 2, predict: Mapping[Kind, Predict] | None = None
) -> Iterator[RenderableType]:
    """Everything in the order in which it is read: detail first, the overall figures last, where the eye is.

    worst: so many records of each kind with their cost trees, to `depth` levels below the root.
    """
    if worst:
        for group in summary.overall:
            yield from _worst(group, worst, depth, predict)
    yield from _unpredicted(summary)
    yield _sources(summary)
    yield Text("")
    yield _overall(summary)
    for group in summary.overall:
        if group.fits != Fits():
            yield Text(_fits_line(group.fits))
    yield from map(Text, LEGEND)


def write_rows(summary: Summary, path: Path) -> None:
    """One line a record, as CSV. InputError where the file cannot be written."""
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(_ROW_FIELDS)
            for outcome in summary.evaluation.outcomes:
                writer.writerow([getattr(outcome, name) for name in _ROW_FIELDS])
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _overall(summary: Summary) -> Table:
    """For each kind the core records, then all, each with the mean of its sources beneath."""
    table = _table("Overall", ("kind", "records"))
    core = {group.kind: group for group in summary.core}
    for group in summary.overall:
        parts = [("core", core[group.kind])] if group.kind in core else []
        name: str = group.kind
        for label, part in (*parts, ("all", group)):
            table.add_row(name, label, *_cells(part))
            means = summary.by_source(group.kind, core=label == "core")
            if means is not None:
                table.add_row("", f"{label}, mean by source", "", _percent(means), "", "", "", "", "")
            name = ""
    return table


def _sources(summary: Summary) -> Table:
    table = _table("By source (all records)", ("kind", "source"))
    previous = ""
    for group in summary.sources:
        table.add_row("" if group.kind == previous else group.kind, group.source, *_cells(group))
        previous = group.kind
    return table


def _table(title: str, names: Sequence[str]) -> Table:
    """Names fold where the terminal is narrow; figures never do."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold", max_width=52)
    for name in _FIGURES:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _cells(group: Group) -> tuple[str, ...]:
    s = group.statistics
    bias = "–" if s.bias is None else f"{s.bias:+.1%}"
    rank = "–" if s.spearman is None else f"{s.spearman:.3f}"
    shares = (_percent(value) for value in (s.mape, s.median_ape, s.p90_ape))
    return f"{s.predicted}/{s.count}", *shares, bias, rank, _percent(s.ordered)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _worst(
    group: Group, count: int, depth: int, predict: Mapping[Kind, Predict] | None
) -> Iterator[RenderableType]:
    furthest = group.worst(count)
    if not furthest:
        return
    yield Text(f"Furthest off, {group.kind}", style="bold")
    for one in furthest:
        outcome = explained(one, predict)
        yield Text(_line(outcome))
        if outcome.cost is not None:
            yield Text("    " + outcome.cost.text(depth).replace("\n", "\n    "), no_wrap=True)
    yield Text("")


def _line(outcome: Outcome) -> str:
    error = "–" if outcome.error is None else f"{outcome.error:+.0%}"
    times = f"{_value(outcome.predicted, outcome.unit)} predicted, {_value(outcome.measured, outcome.unit)} measured"
    return f"  {outcome.id}  {error}  {times}  {outcome.setting}  ({outcome.source})"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "bytes":
        return bytes_text(value)
    return seconds_text(value) if unit == "s" else f"{value:.4g} {unit}"


def _unpredicted(summary: Summary, most: int = 20) -> Iterator[Text]:
    """What was not predicted, by reason."""
    reasons = sorted(summary.unpredicted, key=lambda r: -r.count)
    if reasons:
        yield Text(f"Not predicted: {sum(r.count for r in reasons)} records", style="bold")
    for r in reasons[:most]:
        ids = ", ".join(r.ids) + (" …" if r.count > len(r.ids) else "")
        yield Text(f"  {r.count:>5}  {r.kind}: {shorten(r.reason, _REASON_WIDTH, placeholder=' …')}  [{ids}]")
    if len(reasons) > most:
        rest = reasons[most:]
        yield Text(f"  {sum(r.count for r in rest):>5}  for {len(rest)} further reasons (all with --json)")
    for what, count in _left_out(summary):
        yield Text(f"  {count:>5}  {what}")
    yield Text("")


def _left_out(summary: Summary) -> Iterable[tuple[str, int]]:
    for kind, count in summary.suspect.items():
        yield f"{kind}: suspect, contradicted by other records", count
    yield from summary.evaluation.others.items()


def _fits_line(found: Fits) -> str:
    """The confusion of what fits, in a line."""
    parts = [f"{_of(found.ran)} settings that ran are predicted to fit"]
    if found.ran[1]:
        parts[0] += f" ({_percent(found.false_alarms)} false alarms)"
    if sum(found.oom):
        parts.append(f"{_of(found.oom[::-1])} that ran out of memory are predicted not to")
    if sum(found.crashed):
        parts.append(f"{_of(found.crashed[::-1])} that ran out of memory or crashed are predicted not to")
    return "memory fits: " + "; ".join(parts) + f"; right in all {_percent(found.right)}"


def _of(part: Sequence[int]) -> str:
    return f"{part[0]} of {sum(part)}"
