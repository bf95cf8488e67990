"""`rpeg export-model`: a checkpoint's model as a Hugging Face directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

ORDER = 78


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")],
    steps: Annotated[
        int | None, typer.Option(min=1, help="The checkpoint after so many steps. [default: the last]")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A trained model of the job. [default: the language model]")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to. [default: RUN/MODEL-STEPS]")
    ] = None,
    dtype: Annotated[
        Literal["float32", "float64", "bfloat16"] | None,
        typer.Option(help="Of the weights written. [default: that of training]"),
    ] = None,
) -> None:
    """Write a trained model as a Hugging Face directory: safetensors, configuration, tokenizer.

    From any checkpoint of a run, whatever layout it was trained in; also while the run goes on.

    \b
    Examples:
      rpeg export-model runs/ppo-arithmetic
      rpeg export-model runs/ppo-arithmetic --steps 20 --dtype bfloat16 -o out
    """
    from rpeg.errors import InputError
    from rpeg.runtime.exporting import export_model
    from rpeg.runtime.run_directory import RunDirectory

    directory = RunDirectory(run)
    if not directory.plan.exists():
        raise InputError(f"{run} holds no run")
    typer.echo(export_model(directory, steps, model, output, dtype))
