"""`rpeg init`: a commented job file to start from."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from rpeg.errors import InputError, nearest

ORDER = 10


def command(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("job.yaml"),
    algorithm: Annotated[
        str,
        typer.Option(
            "--algorithm",
            "-a",
            "--template",
            help="ppo or grpo; plan-h100, plan-gh200 or plan-layouts to plan for hardware.",
        ),
    ] = "ppo",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a commented job file to start from.

    It runs as it is: a tiny bundled model learns to add two-digit numbers. Templates plan-… are for asking what a job
    on other hardware takes; change them to yours.

    \b
    Examples:
      rpeg init                              job.yaml, with PPO
      rpeg init --algorithm grpo grpo.yaml
      rpeg init --template plan-h100 job.yaml     PPO of 70B and 8B on nodes of H100, to be planned
    """
    text = template(algorithm)
    if file.is_dir():
        raise InputError(f"{file} is a directory: name a file, such as {file / 'job.yaml'}")
    if file.exists() and not force:
        raise InputError(f"{file} exists already: choose another name, or overwrite it with --force")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}") from None
    next_step = "plan" if algorithm.startswith("plan-") else "check"
    typer.echo(f"Wrote {file}. Next: rpeg {next_step} {file}")


def template(algorithm: str) -> str:
    """The job file for an algorithm. InputError names the nearest when there is none."""
    folder = resources.files("rpeg.cli") / "templates"
    known = sorted(
        entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")
    )
    if algorithm not in known:
        raise InputError(f"there is no job file for algorithm '{algorithm}'. {nearest(algorithm, known)}")
    return (folder / f"{algorithm}.yaml").read_text(encoding="utf-8")
