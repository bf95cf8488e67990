"""`rpeg trace`: a run's trace for a viewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rpeg.errors import InputError

ORDER = 70


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory, or one trace-N in it.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where to write it. [default: RUN/trace.json]")
    ] = None,
    stretch: Annotated[
        int | None,
        typer.Option("--stretch", min=1, help="Which stretch of a resumed run. [default: the last]"),
    ] = None,
) -> None:
    """Write a run's trace as a file that ui.perfetto.dev and chrome://tracing open.

    \b
    Examples:
      rpeg trace runs/ppo
      rpeg trace runs/ppo --stretch 1 -o first.json
    """
    from rpeg.report.chrome import chrome_trace
    from rpeg.trace import read_traces

    traces = read_traces(run)
    number = len(traces) if stretch is None else stretch
    if number > len(traces):
        raise InputError(f"{run} has {len(traces)} stretches; there is no stretch {number}")
    target = out or run / "trace.json"
    try:
        target.write_text(json.dumps(chrome_trace(traces[number - 1])) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None
    typer.echo(f"Wrote {target}. Open it in https://ui.perfetto.dev")
