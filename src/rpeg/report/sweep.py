"""Sweeps as people and programs read them: a table, lines on what cannot be had, the choice, JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.table import Table

from rpeg.report.tables import percent, table
from rpeg.search.sweep import STEPS, Outcome, Row
from rpeg.search.target import Choice, efficiency
from rpeg.units import bytes_text, count_text, seconds_text

_Cell = Callable[[Row, Outcome, Sequence[Row]], str]

_AXES: tuple[tuple[str, Callable[[Row], object]], ...] = (
    ("kind", lambda row: row.kind),
    (">devices", lambda row: row.devices),
    (">stale", lambda row: row.staleness),
    (">samples", lambda row: row.samples),
    (">response", lambda row: f"{row.response_tokens:,.0f}"),
)
_FIGURES: tuple[tuple[str, _Cell], ...] = (
    ("best plan", lambda row, o, rows: o.plan),
    (">step", lambda row, o, rows: seconds_text(o.step_seconds)),
    (">p95", lambda row, o, rows: seconds_text(o.p95_seconds)),
    (">tok/s", lambda row, o, rows: count_text(o.tokens_per_second)),
    (">each", lambda row, o, rows: count_text(o.tokens_per_second / row.devices)),
    (">scaling", lambda row, o, rows: percent(efficiency(row, rows) or 0.0)),
    (">device-h", lambda row, o, rows: _amount(row.device_hours)),
    (">price", lambda row, o, rows: "" if o.price is None else _amount(o.price)),
    (">left", lambda row, o, rows: bytes_text(o.headroom_bytes)),
    (">gap", lambda row, o, rows: percent(o.gap)),
)
_SPARED = (">p95", ">tok/s", ">gap", ">left", ">each", ">scaling", ">device-h")
"""Columns that narrow terminals do without, the first to go first."""

_LEAST_WORDS = 24
"""Characters that a longer name of a plan has room for while there are columns to spare; it folds."""

_BETWEEN = 2
"""Characters between columns."""

_MEANINGS = {
    "each": "tokens a second and device",
    "scaling": "tokens a second and device, of those at the smallest size",
    "device-h": f"device-hours of {STEPS:,} steps",
    "price": f"of {STEPS:,} steps",
    "left": "memory of the fullest device",
    "gap": "to the tightest bound",
}


def rows_table(rows: Sequence[Row], width: int, marked: Row | None = None) -> Table:
    """The rows that have a plan; axes along which nothing changes have no column, nor what `width` has no room for."""
    planned = [(row, row.outcome) for row in rows if row.outcome is not None]
    axes = [
        (name, cell) for name, cell in _AXES if name == ">devices" or len({cell(row) for row in rows}) > 1
    ]
    names = [*(name for name, _ in axes), *(name for name, _ in _FIGURES)]
    cells = [
        [*(str(cell(row)) for _, cell in axes), *(cell(row, outcome, rows) for _, cell in _FIGURES)]
        for row, outcome in planned
    ]
    shown = _that_fit(names, cells, width)
    at = next((i for i, (row, _) in enumerate(planned) if row is marked), None)
    return table([names[i] for i in shown], ([line[i] for i in shown] for line in cells), marked=at)


def legend(shown: Table) -> str:
    """What the columns of a table of rows mean, and where those are that it has no room for."""
    names = {column.header for column in shown.columns}
    meanings = [f"{name}: {meaning}" for name, meaning in _MEANINGS.items() if name in names]
    spared = [name.removeprefix(">") for name in _SPARED if name.removeprefix(">") not in names]
    more = [f"--csv and --json also have {', '.join(spared)}"] if spared else []
    return " · ".join([*meanings, *more])


def _that_fit(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    widths = [
        max(len(name.removeprefix(">")), *(len(line[i]) for line in cells)) for i, name in enumerate(names)
    ]
    words = names.index("best plan")
    widths[words] = min(widths[words], _LEAST_WORDS)
    shown = [i for i in range(len(names)) if i == words or any(line[i] for line in cells)]
    for spared in _SPARED:
        if sum(widths[i] + _BETWEEN for i in shown) <= width:
            break
        shown = [i for i in shown if names[i] != spared]
    return shown


def misses(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each row without a plan: where, and why."""
    for row in rows:
        if row.outcome is None:
            yield f"{_where(row, rows)}: {row.reason}"


def choice_lines(choice: Choice, rows: Sequence[Row]) -> Iterator[str]:
    """What to take for a target, or how near one comes."""
    target = f"a step in {seconds_text(choice.target_seconds)}"
    if choice.fastest is None:
        yield f"{target}: no size has a plan"
    elif choice.row is None:
        outcome = choice.fastest.outcome
        assert outcome is not None
        times = outcome.step_seconds / choice.target_seconds
        yield (
            f"{target}: none of these is fast enough. The nearest, {_where(choice.fastest, rows)}, takes "
            f"{seconds_text(outcome.step_seconds)}, {times:.2f} times as long"
        )
    else:
        outcome = choice.row.outcome
        assert outcome is not None
        price = (
            _amount(outcome.price) if choice.by_price else f"{_amount(choice.row.device_hours)} device-hours"
        )
        yield (
            f"{target}: cheapest with {_where(choice.row, rows)}, {outcome.plan}: {seconds_text(outcome.step_seconds)}, "
            f"{price} for {STEPS:,} steps"
        )
        if not choice.by_price:
            yield "device-hours decided, as some price is not known (--price KIND=…)"


def _where(row: Row, rows: Sequence[Row]) -> str:
    """The values of the axes that change."""
    words = {
        "kind": f"{row.devices} × {row.kind}",
        ">stale": f"staleness {row.staleness}",
        ">samples": f"{row.samples} samples a prompt",
        ">response": f"responses of {row.response_tokens:,.0f} tokens",
    }
    changing = {name for name, cell in _AXES if len({cell(other) for other in rows}) > 1}
    counted = f"{row.devices} device{'s' if row.devices > 1 else ''}"
    first = words["kind"] if "kind" in changing else counted
    return ", ".join([first, *(text for name, text in words.items() if name in changing and name != "kind")])


def _amount(value: float | None) -> str:
    """With its decimals where it is small."""
    return f"{value or 0.0:,.0f}" if (value or 0.0) >= 100 else f"{value or 0.0:.3g}"


def row_json(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """A row flat, with what is worked out from it: what `--json` and `--csv` hold."""
    own, outcome = row.to_json(), row.outcome
    del own["key"], own["outcome"]
    figures = dict.fromkeys(Outcome.__dataclass_fields__)
    if outcome is not None:
        figures |= {name: getattr(outcome, name) for name in figures}
    return {
        **own,
        **figures,
        "tokens_per_second_per_device": row.tokens_per_second_per_device,
        "efficiency": efficiency(row, rows),
        f"device_hours_per_{STEPS}_steps": row.device_hours,
        f"price_per_{STEPS}_steps": figures.pop("price"),
    }


def rows_csv(rows: Sequence[Row]) -> str:
    """One line a row, after one of names; lists are joined by blanks."""
    lines = [row_json(row, rows) for row in rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({k: " ".join(v) if isinstance(v, (list, tuple)) else v for k, v in line.items()})
    return out.getvalue()


def choice_json(choice: Choice, rows: Sequence[Row]) -> dict[str, Any]:
    """JSON-ready; `row` is the place of the chosen one among the rows, None where there is none."""

    def place(row: Row | None) -> int | None:
        return None if row is None else rows.index(row)

    return {
        "target_seconds": choice.target_seconds,
        "row": place(choice.row),
        "fastest": place(choice.fastest),
        "decided_by": "price" if choice.by_price else "device_hours",
    }
