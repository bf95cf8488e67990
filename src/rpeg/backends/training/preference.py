"""Training a reward model on preference pairs by the Bradley–Terry loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rpeg.backends.data.pairs import TokenPair, as_samples
from rpeg.backends.training.trainer import Trainer


def pair_loss(chosen: Tensor, rejected: Tensor, margin: Tensor, center: float) -> Tensor:
    """(n,) -log σ(chosen - rejected - margin) + center · (chosen + rejected)².

    chosen, rejected: (n,) scores; the first term is the negative log-likelihood of Bradley and Terry (1952), with the
    margin of Llama 2 (arXiv:2307.09288, eq. 2); the second keeps scores near zero (arXiv:2312.09244, eq. 2), as the
    first does not depend on what is added to all.
    """
    loss = -logsigmoid(chosen - rejected - margin)
    return loss + center * (chosen + rejected).square() if center else loss


def update(
    trainer: Trainer, pairs: Sequence[TokenPair], *, microbatch: int, center: float
) -> dict[str, float]:
    """One optimizer step on the mean loss of all pairs, whatever the micro-batches.

    Gives `loss`, `accuracy` (chosen scored higher), `margin` (mean difference of scores), `reward` (mean score),
    `grad_norm` (before clipping), `lr` and `applied` (0 where the gradient was not finite).
    """
    trainer.parameters.zero_gradients()
    sums: dict[str, Tensor] = {}
    parts = _parts(pairs, microbatch)
    for number, part in enumerate(parts):
        trainer.parameters.before_backward(number == len(parts) - 1)
        scores = _scores(trainer, part)
        found = _measured(scores, part, center)
        (found["loss"] / len(pairs)).backward()  # type: ignore[no-untyped-call]
        trainer.parameters.after_backward()
        for name, value in found.items():
            sums[name] = sums.get(name, torch.zeros_like(value)) + value.detach()
    step = trainer.step()
    means = {name: float(value) / len(pairs) for name, value in sums.items()}
    return {
        **means,
        "grad_norm": step.gradient_norm,
        "lr": step.learning_rate,
        "applied": float(step.applied),
    }


@torch.no_grad()
def compare(
    trainer: Trainer, pairs: Sequence[TokenPair], *, microbatch: int, center: float
) -> dict[str, float]:
    """`loss`, `accuracy`, `margin` and `reward` of pairs, as means, without training on them."""
    sums: dict[str, float] = {}
    for part in _parts(pairs, microbatch):
        for name, value in _measured(_scores(trainer, part), part, center).items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return {name: value / len(pairs) for name, value in sums.items()}


def _parts(pairs: Sequence[TokenPair], microbatch: int) -> list[list[TokenPair]]:
    """Pairs of like length together, the longest first."""
    ordered = sorted(pairs, key=lambda pair: -max(len(pair.chosen), len(pair.rejected)))
    return [ordered[start : start + microbatch] for start in range(0, len(ordered), microbatch)]


def _scores(trainer: Trainer, part: Sequence[TokenPair]) -> Tensor:
    """(2 n,) scores: of the chosen ones, then of the rejected."""
    samples = as_samples([*(pair.chosen for pair in part), *(pair.rejected for pair in part)])
    return trainer.score(trainer.padding.one(samples, [np.arange(len(samples))], 0))


def _measured(scores: Tensor, part: Sequence[TokenPair], center: float) -> dict[str, Tensor]:
    """Sums over the pairs of a part."""
    chosen, rejected = scores.chunk(2)
    margin = torch.tensor([pair.margin for pair in part], dtype=scores.dtype, device=scores.device)
    return {
        "loss": pair_loss(chosen, rejected, margin, center).sum(),
        "accuracy": (chosen > rejected).sum().to(scores.dtype),
        "margin": (chosen - rejected).sum(),
        "reward": 0.5 * (chosen + rejected).sum(),
    }
