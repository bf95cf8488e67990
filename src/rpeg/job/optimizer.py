"""`Optimizer`: how weights are updated."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rpeg.job.fields import CountOrNone, Decay, NonNegative, Positive
from rpeg.job.section import Section


class Optimizer(Section):
    """AdamW."""

    lr: NonNegative = Field(description="learning rate of the actor")
    critic_lr: NonNegative | None = Field(
        default=None, description="learning rate of the critic; default: lr"
    )
    warmup_steps: CountOrNone = Field(default=0, description="steps over which the rate rises from zero")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        default="constant", description="how the rate falls after the warm-up, to zero at the last step"
    )
    weight_decay: NonNegative = Field(default=0.0, description="decoupled weight decay")
    max_grad_norm: Positive = Field(default=1.0, description="gradients are scaled down to this norm")
    betas: tuple[Decay, Decay] = Field(
        default=(0.9, 0.999), description="decay of the first and second moment"
    )
    eps: Positive = Field(default=1e-8, description="added to the root of the second moment")
