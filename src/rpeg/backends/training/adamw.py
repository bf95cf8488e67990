"""`AdamW`: fused updates of plain local tensors, with its moments in the open so that they can be stored."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from rpeg.backends.training.optimizer import OptimizerConfig

MOMENTS = ("exp_avg", "exp_avg_sq")


class AdamW:
    """Moments are allocated at once, in the dtype of the parameters. All tensors share one step count."""

    def __init__(self, config: OptimizerConfig, parameters: Sequence[Tensor]) -> None:
        self.config = config
        self.parameters = list(parameters)
        self.moments = {name: [torch.zeros_like(p) for p in self.parameters] for name in MOMENTS}
        # A slice can be empty on the last ranks; the fused kernel is not given those.
        self.active = [i for i, parameter in enumerate(self.parameters) if parameter.numel()]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], *, lr: float, update: int) -> None:
        """Update number `update` (from 0) in place."""
        if not self.active:
            return
        device = self.parameters[self.active[0]].device
        adamw(
            [self.parameters[i] for i in self.active],
            [gradients[i] for i in self.active],
            [self.moments["exp_avg"][i] for i in self.active],
            [self.moments["exp_avg_sq"][i] for i in self.active],
            [],
            # The kernel counts up before it uses the count.
            [torch.tensor(float(update), device=device) for _ in self.active],
            fused=True,
            amsgrad=False,
            beta1=self.config.betas[0],
            beta2=self.config.betas[1],
            lr=lr,
            weight_decay=self.config.weight_decay,
            eps=self.config.eps,
            maximize=False,
        )

    def state_bytes(self) -> int:
        """Bytes of the moments on this rank."""
        return sum(m.nbytes for moments in self.moments.values() for m in moments)
