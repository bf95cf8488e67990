"""Random batches for tests of losses, and every policy loss with hyperparameters that use all of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rpeg import algorithms
from rpeg.algorithms import aggregation
from rpeg.algorithms.loss import TokenLoss

MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.bool)
NAN = float("nan")
EVERYTHING: dict[str, Any] = {
    "kl_in": "loss",
    "kl_estimator": "k3",
    "kl_coefficient": 0.1,
    "entropy_coefficient": 0.05,
    "conventions": "verl",
}
NAMES = algorithms.names()


def policy(name: str, everything: bool = True) -> tuple[Any, Any]:
    """(the policy loss of an algorithm, hyperparameters)."""
    module = algorithms.load(name)
    op = next(op for op in module.OPS if op.endswith("policy_loss"))
    return module.OPS[op], module.Hyper(**EVERYTHING) if everything else module.Hyper()


def columns(seed: int = 0, mask: Tensor = MASK) -> dict[str, Tensor]:
    """Ratios near 1, advantages that are one number a response; NaN outside the mask."""
    draw = torch.Generator().manual_seed(seed)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    old = -some(*mask.shape).abs() - 0.1
    made = {
        "old_logprobs": old,
        "logprobs": old + 0.3 * some(*mask.shape),
        "ref_logprobs": old + 0.3 * some(*mask.shape),
        "advantages": some(len(mask), 1).expand(mask.shape),
        "importance_weights": some(*mask.shape).exp(),
        "entropy": some(*mask.shape).abs(),
        "new_values": some(*mask.shape),
        "values": some(*mask.shape),
        "returns": some(*mask.shape),
    }
    return {name: column.masked_fill(~mask, NAN) for name, column in made.items()}


def total(
    op: Any, made: dict[str, Tensor], mask: Tensor, hyper: Any, weights: Tensor | None = None
) -> Tensor:
    """The loss of a batch, each token with its weight in the whole."""
    found: TokenLoss = op(made, mask, hyper)
    if weights is None:
        weights = aggregation.token_weights(mask.sum(1), hyper.loss_aggregation, hyper.fixed_length)
    result: Tensor = (weights[:, None] * found.loss).sum()
    return result
