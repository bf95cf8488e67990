"""Probability ratios and what bounds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpeg.algorithms.kl import LOG_RATIO_BOUND
from rpeg.algorithms.masked import inside

if TYPE_CHECKING:
    from torch import Tensor

SEQUENCE_LOG_RATIO_BOUND = 10.0
"""The same for the mean log ratio of a response."""


def probability_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """exp(logprobs - old_logprobs), finite: the log ratio is clamped to ± LOG_RATIO_BOUND."""
    return (logprobs - old_logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def sequence_ratio(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """(n, T) the ratio of GSPO-token (arXiv:2507.18071, "GSPO-token").

    In value the geometric mean of a response's ratios, at each of its tokens; in gradient that value times the
    gradient of the token's own log-probability.
    """
    log_ratio = inside(logprobs - old_logprobs, mask).detach()
    mean = log_ratio.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)
    return (logprobs - logprobs.detach() + mean).clamp(max=SEQUENCE_LOG_RATIO_BOUND).exp()


def clipped_policy_loss(
    ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """PPO's clipped surrogate to be minimised, elementwise; where the clip and where the dual clip cut off the
    gradient (bool).

    max(-A·ratio, -A·clip(ratio, 1 - clip_low, 1 + clip_high)) (PPO, arXiv:1707.06347; unequal bounds: DAPO,
    arXiv:2503.14476); where A < 0 at most -A·dual_clip (dual-clip PPO, arXiv:1912.09729).
    """
    free = -advantages * ratio
    bound = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = free.maximum(bound)
    clipped = bound > free
    over = clipped & ~clipped
    if dual_clip is not None:
        ceiling = -advantages * dual_clip
        over = (advantages < 0) & (loss > ceiling)
        loss = ceiling.where(over, loss)
    return loss, clipped, over
