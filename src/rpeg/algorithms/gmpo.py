"""GMPO: the geometric mean of a response's clipped ratios weighs its advantage (arXiv:2507.20673)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import aggregation, grpo, loss, pieces, shaping
from rpeg.algorithms.hyper import ClipHyper, GroupHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.algorithms.masked import inside
from rpeg.ir import Graph

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(ClipHyper, GroupHyper):
    """The hyperparameters of GMPO; the base classes say what each means.

    clip_low, clip_high: how far a token's log ratio may move a response's mean, so that the ratio lies within
    [exp(-clip_low), exp(clip_high)] (section 3.3).
    """

    clip_low: float = 0.4
    clip_high: float = 0.4
    loss_aggregation: aggregation.Aggregation = "sequence_mean_token_mean"


def gmpo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """-A · exp(mean of the clipped log ratios), the same at each token of a response (eq. 4).

    See `loss.policy_loss` for what it reads; importance weights weigh by their geometric mean.
    """
    trained = loss.trained_mask(columns, mask)
    if "importance_weights" in columns:
        weights = inside(columns["importance_weights"].clamp(min=1e-10).log(), trained)
        columns = {**columns, "importance_weights": _row_mean(weights, trained).exp()}

    def surrogate(
        logprobs: Tensor, old: Tensor, advantages: Tensor, trained: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        log_ratio = logprobs - old
        bounded = log_ratio.clamp(-hyper.clip_low, hyper.clip_high)
        sign = advantages.sign()
        least = sign * (sign * log_ratio).minimum(sign * bounded)
        ratio = inside(_row_mean(least, trained).exp(), trained)
        value = -_row_mean(advantages, trained) * ratio
        return value, loss.ratio_metrics(ratio, mask, trained & (log_ratio != bounded))

    return loss.policy_loss(columns, mask, hyper, surrogate)


def _row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """(n, T) the mean of each row of values that are zero outside the mask, at each of its places."""
    return (values.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)).expand_as(values)


def graph(hyper: Hyper) -> Graph:
    """As GRPO's."""
    return pieces.policy_step("gmpo", hyper, [grpo.NORMALIZE], "gmpo_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = {**shaping.OPS, "gmpo_policy_loss": gmpo_policy_loss}
