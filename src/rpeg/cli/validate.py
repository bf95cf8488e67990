"""`rpeg validate`: how far is the model off, on measurements that somebody published?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rpeg.validation import Evaluation, Located, Summary

ORDER = 80
MOST_SHOWN = 20  # lines of a kind on standard error


def command(
    data: Annotated[
        list[Path],
        typer.Argument(metavar="DATA...", help="Files of JSON lines, or directories of such files."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON instead.")] = False,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help="Only this kind of record (repeat for more).")
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Only sources with this in their name (repeat for more)."),
    ] = None,
    worst: Annotated[
        int, typer.Option("--worst", min=0, help="Records of each kind to explain, furthest off first.")
    ] = 5,
    depth: Annotated[int, typer.Option("--depth", min=0, help="Levels of their cost trees to show.")] = 2,
    rows: Annotated[
        Path | None, typer.Option("--rows", metavar="FILE.CSV", help="Write one line a record here.")
    ] = None,
) -> None:
    """Predict every published measurement in DATA, and show how far off the predictions are.

    A record is one JSON object a line: what ran (model, device, layout, lengths) and what was measured. Its fields say
    of which kind it is: train (step time), infer_static and infer_loop (generation of a static batch, and with a fixed
    number of requests in flight), memory (peak), real and rl (whole RL steps), weightsync. Your own measurements in
    the same form are judged alike; docs/model.md lists the fields.

    Figures stand for each source and for each kind, over the records marked `core` (a balanced sample) and over all;
    records marked `suspect` are left out. What cannot be predicted is counted with its reason. --worst shows where the
    predicted time of the worst records goes; with --source, those of that source.

    Exit code 1 when the model itself fails on a record, 2 when a line of DATA cannot be read.

    \b
    Examples:
      rpeg validate measurements/
      rpeg validate measurements/train.jsonl --source torchtitan --worst 10 --depth 4
      rpeg validate mine.jsonl --kind memory --rows memory.csv
      rpeg validate measurements/ --json      {"sources": …, "overall": …, "core": …, "unpredicted": …}
    """
    import json

    from rpeg.cost.kernels.sources import user_files
    from rpeg.errors import InputError
    from rpeg.validation import read_records, select, summarise
    from rpeg.validation.report import write_rows

    if rows is not None and not rows.parent.is_dir():  # before the work, not after it
        raise InputError(f"{rows.parent} does not exist: --rows needs a directory to write in")
    user_files("")  # a kernel file that is missing is no fault of the records
    reading = read_records(data)
    chosen = select(reading.records, kind or (), source or ())
    summary = summarise(_evaluated(chosen), reading.broken)
    if rows is not None:
        write_rows(summary, rows)
    if as_json:
        typer.echo(json.dumps(summary.to_json(worst), indent=1))
    else:
        _show(summary, worst, depth)
    _finish(summary)


def _evaluated(records: list[Located]) -> Evaluation:
    """Shows progress on standard error while it works, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    from rpeg.validation import evaluate

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("predicting", total=len(records))
        return evaluate(records, advance=lambda: progress.advance(task))


def _show(summary: Summary, worst: int, depth: int) -> None:
    from rich.console import Console

    from rpeg.validation.report import report

    console = Console(highlight=False)
    wide = Console(highlight=False, width=max(console.width, 140)) if not console.is_terminal else console
    for part in report(summary, worst, depth):
        wide.print(part, soft_wrap=True)


def _finish(summary: Summary) -> None:
    """Bugs and broken lines on standard error, and their exit codes."""
    from collections import Counter

    from rpeg.errors import InputError, RpegError

    bugs, broken = summary.evaluation.bugs, summary.broken
    alike = Counter((bug.kind, bug.where, bug.what) for bug in bugs)
    first = {(bug.kind, bug.where, bug.what): bug.id for bug in reversed(bugs)}
    for (kind, where, what), count in alike.most_common(MOST_SHOWN):
        which = f"record {first[kind, where, what]}" + (f" and {count - 1} others" if count > 1 else "")
        typer.echo(f"bug on {kind} {which}: {what} ({where})", err=True)
    for line in broken[:MOST_SHOWN]:
        typer.echo(line, err=True)
    if bugs:
        raise RpegError(f"the model fails on {len(bugs)} records, which is a bug in it: please report it")
    if broken:
        raise InputError(f"{len(broken)} lines cannot be read; the others are in the figures")
    if not summary.evaluation.judged:
        raise InputError("there is no record to predict: see `rpeg validate --help` for what one is")
