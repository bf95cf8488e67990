"""`rpeg samples`: what the model wrote in a run, with rewards and advantages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

ORDER = 75


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")],
    step: Annotated[int | None, typer.Option(min=0, help="Of this step. [default: the last kept]")] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="So many at most.")] = 8,
    sort: Annotated[
        Literal["id", "best", "worst"], typer.Option(help="By id, or the best or worst reward first.")
    ] = "id",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, whole texts.")] = False,
) -> None:
    """Show samples of a run: prompt, response, answer, reward, advantage.

    A run keeps the first samples.count of every samples.every-th step (job file).

    \b
    Examples:
      rpeg samples runs/ppo-arithmetic
      rpeg samples runs/ppo-arithmetic --step 20 --sort worst
    """
    import json
    from dataclasses import asdict

    from rich.console import Console

    from rpeg.errors import InputError
    from rpeg.report.samples import chosen, samples_table
    from rpeg.trace import read_kept

    kept = read_kept(run)
    found = chosen(kept, step=step, order=sort, count=count)
    if not found:
        steps = sorted({sample.step for sample in kept})
        raise InputError(f"{run} keeps no samples of step {step}, only of {', '.join(map(str, steps))}")
    if as_json:
        for sample in found:
            typer.echo(json.dumps(asdict(sample), ensure_ascii=False))
        return
    Console(highlight=False).print(samples_table(found))
