"""What a loss gives, and `Tally`: sums of losses and metrics, kept on the device until they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from rpeg.backends.training import collectives
from rpeg.backends.training.collectives import Group


class TokenLossLike(Protocol):
    """What a loss op returns: (n, T) losses and metrics."""

    @property
    def loss(self) -> Tensor: ...

    @property
    def metrics(self) -> Mapping[str, Tensor]: ...


Loss = Callable[[Mapping[str, Tensor], Tensor], TokenLossLike]


@dataclass
class Tally:
    """loss: Σ weight · loss on this rank. sums: Σ of each metric over this rank's `tokens`."""

    loss: list[Tensor] = field(default_factory=list)
    sums: dict[str, list[Tensor]] = field(default_factory=dict)
    tokens: int = 0

    def add(self, loss: Tensor, metrics: Mapping[str, Tensor], mask: Tensor, tokens: int) -> None:
        """loss: () weighted sum. metrics: (n, T) each; what lies outside the mask is ignored."""
        self.loss.append(loss.detach())
        self.tokens += tokens
        for name, metric in metrics.items():
            total = torch.where(mask, metric.detach(), 0).sum(dtype=torch.float64)
            self.sums.setdefault(name, []).append(total)

    def reduce(self, group: Group, device: torch.device) -> tuple[float, int, dict[str, float]]:
        """Over all ranks: the loss, the tokens, and each metric's mean over them. Collective."""
        mine = [_total(self.loss), self.tokens, {name: _total(parts) for name, parts in self.sums.items()}]
        ranks = collectives.gather_json(mine, group, device)
        tokens = sum(r[1] for r in ranks)
        names = sorted({name for r in ranks for name in r[2]})
        means = {name: sum(r[2].get(name, 0.0) for r in ranks) / max(1, tokens) for name in names}
        return sum(r[0] for r in ranks), tokens, means


def _total(parts: list[Tensor]) -> float:
    return float(torch.stack(parts).double().sum()) if parts else 0.0
