"""`OptimizerConfig`: AdamW with its learning-rate schedule, as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]
SCHEDULES: tuple[Schedule, ...] = ("constant", "linear", "cosine")


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW (Loshchilov and Hutter 2019, decoupled weight decay on every parameter).

    lr: peak learning rate. warmup_steps: updates over which it rises linearly from lr / warmup_steps.
    schedule: what follows the warm-up: constant, or linear or cosine down to 0 at `total_steps` updates.
    max_grad_norm: the global gradient norm is clipped to it; None clips nothing.
    All counts are optimizer updates (minibatches), over the whole run.
    """

    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup_steps: int = 0
    schedule: Schedule = "constant"
    total_steps: int | None = None
    max_grad_norm: float | None = 1.0

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule is {self.schedule!r}, known: {', '.join(SCHEDULES)}")
        if self.schedule != "constant" and self.total_steps is None:
            raise ValueError(f"schedule {self.schedule!r} needs total_steps, the updates after which lr is 0")
        if self.lr < 0 or self.eps <= 0 or self.weight_decay < 0 or self.warmup_steps < 0:
            raise ValueError(f"lr, weight_decay and warmup_steps must be ≥ 0 and eps > 0, got {self}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must lie in [0, 1), got {self.betas}")
        if self.max_grad_norm is not None and self.max_grad_norm <= 0:
            raise ValueError(f"max_grad_norm must be > 0 or null, got {self.max_grad_norm}")


def learning_rate(config: OptimizerConfig, update: int) -> float:
    """The learning rate of update number `update` (the first is 0)."""
    if update < config.warmup_steps:
        return config.lr * (update + 1) / config.warmup_steps
    if config.total_steps is None or config.schedule == "constant":
        return config.lr
    span = max(1, config.total_steps - config.warmup_steps)
    done = min(1.0, (update - config.warmup_steps) / span)
    return config.lr * (1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2)
