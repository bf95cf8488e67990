"""What a loss gives, and `Tally`: sums of losses and metrics, kept on the device until they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from rpeg.backends.training import collectives
from rpeg.backends.training.collectives import Group

LARGEST = "_max"


class TokenLossLike(Protocol):
    """What a loss op returns: (n, T) losses and metrics."""

    @property
    def loss(self) -> Tensor: ...

    @property
    def metrics(self) -> Mapping[str, Tensor]: ...


Loss = Callable[[Mapping[str, Tensor], Tensor], TokenLossLike]


@dataclass
class Tally:
    """loss: Σ weight · loss on this rank. sums: Σ of each metric over this rank's `tokens`; the largest where its name
    ends in `_max`."""

    loss: list[Tensor] = field(default_factory=list)
    sums: dict[str, list[Tensor]] = field(default_factory=dict)
    tokens: int = 0

    def add(self, loss: Tensor, metrics: Mapping[str, Tensor], mask: Tensor, tokens: int) -> None:
        """loss: () weighted sum. metrics: (n, T) each; what lies outside the mask is ignored."""
        self.loss.append(loss.detach())
        self.tokens += tokens
        for name, metric in metrics.items():
            inside = torch.where(mask, metric.detach(), 0).double()
            largest = name.endswith(LARGEST) and inside.numel()
            self.sums.setdefault(name, []).append(inside.max() if largest else inside.sum())

    def reduce(self, group: Group, device: torch.device) -> tuple[float, int, dict[str, float]]:
        """Over all ranks: the loss, the tokens, and each metric's mean over them, or its largest. Collective."""
        mine = [
            _total(self.loss),
            self.tokens,
            {name: _put_together(name, s) for name, s in self.sums.items()},
        ]
        ranks = collectives.gather_json(mine, group, device)
        tokens = sum(r[1] for r in ranks)
        names = sorted({name for r in ranks for name in r[2]})
        found = {name: [r[2][name] for r in ranks if name in r[2]] for name in names}
        means = {
            name: max(values) if name.endswith(LARGEST) else sum(values) / max(1, tokens)
            for name, values in found.items()
        }
        return sum(r[0] for r in ranks), tokens, means


def _put_together(name: str, parts: list[Tensor]) -> float:
    return float(torch.stack(parts).max()) if name.endswith(LARGEST) else _total(parts)


def _total(parts: list[Tensor]) -> float:
    return float(torch.stack(parts).double().sum()) if parts else 0.0
