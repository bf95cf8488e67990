"""`rpeg train-reward`: trains a reward model on preference pairs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from rpeg.runtime.reward_training import RewardOutcome

ORDER = 45
LINES = 20
"""Steps that are told of, about, over a whole run."""


def command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove an older run in the same place.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The run's directory, instead of the job's.")
    ] = None,
) -> None:
    """Train a reward model on preference pairs, and write it as a Hugging Face sequence classifier.

    A PPO or GRPO job takes it as models.reward. Ctrl-C writes a checkpoint and ends; a second one ends at once.

    \b
    Examples:
      rpeg train-reward examples/reward-model.yaml
      rpeg train-reward reward.yaml --resume
    """
    from rich.console import Console

    from rpeg.cli.main import INTERRUPTED
    from rpeg.errors import InputError
    from rpeg.job.reward_job import load_reward_job
    from rpeg.runtime.reward_training import train_reward

    if resume and overwrite:
        raise InputError("--resume goes on with a run and --overwrite removes it; choose one")
    job = load_reward_job(job_file)
    if output is not None:
        job = job.model_copy(update={"output": str(output.absolute())})
    console = Console(highlight=False)
    outcome = train_reward(job, _Lines(console), resume=resume, overwrite=overwrite)
    _show(outcome, console)
    if not outcome.finished:
        raise typer.Exit(INTERRUPTED)


class _Lines:
    """A line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def on_pairs(self, split: str, kept: int, dropped: Mapping[str, int]) -> None:
        left_out = "".join(f", {count} dropped: {why}" for why, count in dropped.items())
        self._say(f"{split}: {kept} pairs{left_out}")

    def on_step(self, step: int, steps: int, metrics: Mapping[str, float]) -> None:
        if (step + 1) % max(1, steps // LINES) == 0 or not metrics["applied"]:
            self._say(f"step {step + 1}/{steps}  {_text(metrics)}  lr {metrics['lr']:.2g}")

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        self._say(f"after {step} steps, held out: {_text(metrics)}")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)


def _text(metrics: Mapping[str, float]) -> str:
    return f"loss {metrics['loss']:.3f}  accuracy {metrics['accuracy']:.3f}  margin {metrics['margin']:.3f}"


def _show(outcome: RewardOutcome, console: Console) -> None:
    console.print(f"{outcome.steps} of {outcome.asked} steps in {outcome.seconds:.0f} s", markup=False)
    if outcome.evaluations:
        first, last = min(outcome.evaluations), max(outcome.evaluations)
        before, after = (outcome.evaluations[step]["accuracy"] for step in (first, last))
        console.print(f"held-out accuracy {before:.3f} → {after:.3f}", markup=False)
    if outcome.finished:
        console.print(
            f"The reward model is in {outcome.directory / 'model'}: a job takes it as models.reward, with "
            "reward: {name: model}",
            markup=False,
        )
    else:
        console.print("Stopped. Go on with the same command and --resume.", markup=False)
