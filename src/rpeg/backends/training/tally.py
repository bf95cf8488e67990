"""What a loss gives, and `Tally`: sums of losses and metrics, kept on the device until they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


LARGEST = "_max"
"""How the name of a metric ends whose largest value counts, not its mean."""


@dataclass
class Tally:
    """loss: Σ weight · loss on this rank. values: of each metric the sum over this rank's `tokens`, or the largest."""

    loss: list[Tensor] = field(default_factory=list)
    values: dict[str, list[Tensor]] = field(default_factory=dict)
    tokens: int = 0

    def add(self, loss: Tensor, metrics: Mapping[str, Tensor], mask: Tensor, tokens: int) -> None:
        """loss: () weighted sum. metrics: (n, T) each; what lies outside the mask is ignored."""
        self.loss.append(loss.detach())
        self.tokens += tokens
        for name, metric in metrics.items():
            inside = metric.detach()[mask].double()
            if name.endswith(LARGEST):
                found = inside.amax() if inside.numel() else inside.new_tensor(-torch.inf)
            else:
                found = inside.sum()
            self.values.setdefault(name, []).append(found)

    def reduce(self, group: Group, device: torch.device) -> tuple[float, int, dict[str, float]]:
        """Over all ranks: the loss, the tokens, and each metric's mean over them or largest value. Collective."""
        mine = [
            _total(self.loss),
            self.tokens,
            {name: _reduced(name, torch.stack(parts).tolist()) for name, parts in self.values.items()},
        ]
        ranks = collectives.gather_json(mine, group, device)
        tokens = sum(r[1] for r in ranks)
        found = {}
        for name in sorted({name for r in ranks for name in r[2]}):
            value = _reduced(name, [r[2][name] for r in ranks if name in r[2]])
            found[name] = value if name.endswith(LARGEST) else value / max(1, tokens)
        return sum(r[0] for r in ranks), tokens, found


def _reduced(name: str, values: Sequence[float]) -> float:
    return max(values) if name.endswith(LARGEST) else sum(values)


def _total(parts: list[Tensor]) -> float:
    return float(torch.stack(parts).double().sum()) if parts else 0.0
