"""What `rpeg sweep` asks for, keeps, tells meanwhile, and shows."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO

import typer
from rich.console import Console

from rpeg.cli import _axes
from rpeg.cluster import kind_named, systems
from rpeg.errors import InputError
from rpeg.fields import parse_json, read_text
from rpeg.report import sweep as report
from rpeg.report.sweep_plot import plot as plotted
from rpeg.search import Problem, Progress
from rpeg.search.changes import Change, Devices, MeanResponse, OfKind, Price, Samples, Staleness
from rpeg.search.sweep import FAILED, Row
from rpeg.search.target import Choice, cheapest
from rpeg.units import count_text, seconds_text

Axes = list[list[tuple[Change, ...]]]


@dataclass(frozen=True)
class Asked:
    """The axes as the command line spells them; "" for one that is not swept."""

    devices: str
    kind: str
    staleness: str
    samples: str
    response: str
    prices: tuple[str, ...]


def axes_of(asked: Asked, problem: Problem) -> Axes:
    """The changes of each axis; the number of devices varies fastest but for staleness. InputError for bad values."""
    if not any((asked.devices, asked.kind, asked.staleness, asked.samples, asked.response)):
        raise InputError("nothing to sweep: say --devices 8..2048, --kind h100,h200, --staleness 0,1 …")
    return [
        _counts("--samples", asked.samples, Samples),
        _counts("--response", asked.response, MeanResponse),
        _hardware(asked, problem),
        _counts("--staleness", asked.staleness, Staleness, least=0),
    ]


def _counts(
    option: str, text: str, change: Callable[[int], Change], least: int = 1
) -> list[tuple[Change, ...]]:
    return [(change(n),) for n in _axes.counts(option, text, least)] if text else []


def _hardware(asked: Asked, problem: Problem) -> list[tuple[Change, ...]]:
    """Kinds with their prices, each at every number of devices; the job's own kind keeps the job's nodes and links."""
    counts: list[int | None] = [*_axes.counts("--devices", asked.devices)] if asked.devices else [None]
    prices = _axes.prices("--price", list(asked.prices))
    own = problem.cluster.kinds[0].name if len(problem.cluster.kinds) == 1 else ""
    kinds = _axes.names(asked.kind) or [""]
    unused = [name for name in prices if _kind(name) not in {_kind(kind) if kind else own for kind in kinds}]
    if unused:
        raise InputError(
            f"--price {unused[0]}: no such devices are swept. Remove it, or add {unused[0]} to --kind."
        )
    found: list[tuple[Change, ...]] = []
    for kind in kinds:
        same = not kind or (kind not in systems() and _kind(kind) == own)
        priced = tuple(Price(n, p) for n, p in prices.items() if _kind(n) == (_kind(kind) if kind else own))
        for count in counts:
            first = (Devices(count),) if same and count else () if same else (OfKind(kind, count),)
            found.append((*first, *priced))
    return found


def _kind(name: str) -> str:
    from rpeg.cluster import system

    return system(name).kinds[0].name if name in systems() else kind_named(name).name


def target_of(seconds: float | None, hours: float | None, steps: int) -> float | None:
    """Seconds that a step may take."""
    if seconds is not None and hours is not None:
        raise InputError("--target-seconds and --target-hours are both given. Keep one of them.")
    target = seconds if hours is None else hours * 3600 / steps
    if target is not None and not 0 < target < float("inf"):
        raise InputError(f"a step in {target:g} s cannot be had: give a target above 0")
    return target


@contextmanager
def pool_of(processes: int, tasks: int) -> Iterator[Executor | None]:
    """Processes for so many tasks; 0 stands for the cores of this machine. None where one is enough."""
    count = min(processes or os.cpu_count() or 1, tasks)
    if count <= 1:
        yield None
        return
    # not forked: the line on the terminal has a thread of its own
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for (
            child
        ) in multiprocessing.active_children():  # who interrupts does not wait for what is being planned
            child.terminate()


class Kept:
    """The file of rows, one JSON object a line, and what stderr says meanwhile.

    A terminal has one line that says how far the sweep is; a file or pipe gets a line for each row that is done.
    """

    def __init__(self, path: Path, resume: bool, count: int) -> None:
        self._path, self._count, self._done = path, count, 0
        self.known: Mapping[str, Row] = _read(path) if resume and path.exists() else {}
        self._file = _opened(path, self.known.values())
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("")

    def __enter__(self) -> Kept:
        self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._status.stop()
        self._file.close()

    def begin(self, row: Row) -> Callable[[Progress], None]:
        """Says which row is being planned; what it returns says how its search goes on."""
        words = f"{self._place(row)} …"
        self._status.update(words)

        def of_search(progress: Progress) -> None:
            best = "" if progress.best == float("inf") else f", best step {seconds_text(progress.best)}"
            self._status.update(f"{words} {count_text(progress.evaluations)} plans{best}")

        return of_search

    def _place(self, row: Row) -> str:
        return f"{self._done + 1} of {self._count}: {row.devices} × {row.kind}, staleness {row.staleness}"

    def add(self, row: Row) -> None:
        if not self._console.is_terminal:
            took = "kept" if row.key in self.known else seconds_text(row.planning_seconds)
            step = seconds_text(row.outcome.step_seconds) if row.outcome else "no plan"
            typer.echo(f"{self._place(row)}: {step} ({took})", err=True)
        self._done += 1
        if row.key not in self.known:
            self._file.write(_line(row))
            self._file.flush()


def _opened(path: Path, rows: Iterable[Row]) -> TextIO:
    """The file with these rows, which at no time has fewer of them."""
    try:
        partial = path.with_name(f"{path.name}.partial")
        partial.write_text("".join(map(_line, rows)), encoding="utf-8")
        partial.replace(path)
        return path.open("a", encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a path without a name
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write {path}: {reason}. Choose another file with --rows.") from None


def _line(row: Row) -> str:
    return json.dumps(row.to_json()) + "\n"


def _read(path: Path) -> dict[str, Row]:
    """Kept rows by key; the last line may have been cut off, and what failed is tried again."""
    lines = read_text(path).splitlines()
    found: dict[str, Row] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = Row.from_json(parse_json(line, "it"))
        except InputError as error:
            if number == len(lines):
                break
            raise InputError(
                f"{path}, line {number}, is no row of a sweep: {error}. Delete that line to plan it again, or start "
                "over without --resume."
            ) from None
        if not row.reason.startswith(FAILED):
            found[row.key] = row
    return found


def show(
    rows: Sequence[Row], target: float | None, *, as_json: bool, as_csv: bool, plot: Path | None
) -> None:
    """Prints the rows and the choice, and writes the plot."""
    choice = None if target is None else cheapest(rows, target)
    if as_json:
        chosen = None if choice is None else report.choice_json(choice, rows)
        typer.echo(
            json.dumps({"rows": [report.row_json(row, rows) for row in rows], "choice": chosen}, indent=1)
        )
    elif as_csv:
        typer.echo(report.rows_csv(rows), nl=False)
    else:
        _print(rows, choice)
    if plot is not None and any(row.outcome for row in rows):
        _write(plot, plotted(rows, target))
        typer.echo(f"The plot is in {plot}.", err=True)


def _print(rows: Sequence[Row], choice: Choice | None) -> None:
    console = Console(highlight=False)
    if any(row.outcome for row in rows):
        shown = report.rows_table(rows, console.width, choice.row if choice else None)
        console.print(shown)
        console.print(report.legend(shown), markup=False)
    for line in (*report.misses(rows), *(() if choice is None else report.choice_lines(choice, rows))):
        console.print(line, markup=False, soft_wrap=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}. Choose another file with --plot.") from None
