"""`rpeg compare`: predicted beside measured times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

ORDER = 60
PREDICTED = "predicted"


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a real run.")],
    predicted: Annotated[
        Path | None,
        typer.Option("--predicted", help=f"Directory of the simulated run. [default: RUN/{PREDICTED}]"),
    ] = None,
    skip: Annotated[
        int | None,
        typer.Option("--skip", min=1, help="Steps at the start that do not count. [default: the fill]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Print predicted beside measured times: the step, each stage and transfer, and where each lane's time goes.

    \b
    Examples:
      rpeg compare runs/ppo
      rpeg compare runs/ppo --skip 3 --json
    """
    from rich.console import Console

    from rpeg.errors import InputError
    from rpeg.report.compare import compare, comparison_table, stretch_to_compare
    from rpeg.trace import read_traces

    measured = stretch_to_compare(read_traces(run))
    prediction = predicted or run / PREDICTED
    if not prediction.exists():
        raise InputError(
            f"{prediction} does not exist: name the directory of the plan's simulated run with --predicted"
        )
    comparison = compare(stretch_to_compare(read_traces(prediction)), measured, skip)
    if as_json:
        typer.echo(json.dumps(comparison.to_json(), indent=2))
    else:
        Console().print(comparison_table(comparison))
