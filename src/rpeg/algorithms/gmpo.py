"""GMPO: the geometric mean of a response's clipped ratios weighs its advantage (arXiv:2507.20673)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import aggregation, grpo, loss, pieces, shaping
from rpeg.algorithms.hyper import ClipHyper, GroupHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.algorithms.masked import inside, masked_mean
from rpeg.ir import Graph

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(ClipHyper, GroupHyper):
    """The hyperparameters of GMPO; the base classes say what each means.

    clip_low, clip_high: how far a token's log ratio may move a response's mean, so that the ratio lies within
    [exp(-clip_low), exp(clip_high)]; 0.4 is the paper's (section 4).
    """

    clip_low: float = 0.4
    clip_high: float = 0.4
    loss_aggregation: aggregation.Aggregation = "sequence_mean_token_mean"


def gmpo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """-A · exp(mean of the clipped log ratios), the same at each token of a response.

    See `loss.policy_loss` for what it reads; importance weights weigh by their geometric mean.
    """

    def mean(values: Tensor, trained: Tensor) -> Tensor:
        """(n, T) the mean of each row, at each of its places."""
        return masked_mean(values, trained, 1, hyper.preset.mean_epsilon).unsqueeze(1).expand_as(values)

    if "importance_weights" in columns:
        weights = columns["importance_weights"].clamp(min=1e-10).log()
        columns = {**columns, "importance_weights": mean(weights, loss.trained_mask(columns, mask)).exp()}

    def surrogate(
        logprobs: Tensor, old: Tensor, advantages: Tensor, trained: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        log_ratio = logprobs - old
        bounded = log_ratio.clamp(-hyper.clip_low, hyper.clip_high)
        sign = advantages.sign()
        least = sign * (sign * log_ratio).minimum(sign * bounded)
        ratio = inside(mean(least, trained).exp(), trained)
        value = -mean(advantages, trained) * ratio
        return value, loss.ratio_metrics(ratio, mask, trained & (log_ratio != bounded))

    return loss.policy_loss(columns, mask, hyper, surrogate)


def graph(hyper: Hyper) -> Graph:
    """As GRPO's."""
    return pieces.policy_step("gmpo", hyper, [grpo.NORMALIZE], "gmpo_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = {**shaping.OPS, "gmpo_policy_loss": gmpo_policy_loss}
