"""`Update`: what an optimizer step did, and what several of them report together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rpeg.backends.training import collectives
from rpeg.backends.training.grid import Grid
from rpeg.backends.training.tally import Tally


@dataclass(frozen=True)
class Update:
    """What one optimizer step did. gradient_norm: before clipping. applied: whether that was finite."""

    gradient_norm: float
    learning_rate: float
    applied: bool


def summary(tally: Tally, steps: Sequence[Update], grid: Grid, device: torch.device) -> dict[str, float]:
    """The metrics of `Trainer.train`, from the last stage of a pipeline. Collective."""
    whole = tally.reduce(grid.group("dp"), device)
    loss, tokens, metrics = collectives.gather_json(whole, grid.group("pp"), device)[-1]
    applied = sum(step.applied for step in steps)
    count = max(1, len(steps))
    return {
        **metrics,
        "loss": loss / count,
        "grad_norm": sum(step.gradient_norm for step in steps) / count,
        "lr": sum(step.learning_rate for step in steps) / count,
        "tokens": tokens,
        "applied": applied,
        "skipped": len(steps) - applied,
    }
