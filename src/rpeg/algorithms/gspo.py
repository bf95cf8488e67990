"""GSPO: one probability ratio a response, clipped as a whole (arXiv:2507.18071)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import aggregation, grpo, loss, pieces, shaping
from rpeg.algorithms.clipping import clipped_policy_loss, sequence_ratio
from rpeg.algorithms.hyper import ClipHyper, GroupHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.ir import Graph

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(ClipHyper, GroupHyper):
    """The hyperparameters of GSPO; the base classes say what each means.

    clip_low, clip_high: of the geometric mean of a response's ratios, so much narrower than a token's (section 5.1).
    """

    clip_low: float = 3e-4
    clip_high: float = 4e-4
    loss_aggregation: aggregation.Aggregation = "sequence_mean_token_mean"


def gspo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate of the response's ratio, see `loss.policy_loss` for what it reads."""

    def surrogate(
        logprobs: Tensor, old: Tensor, advantages: Tensor, trained: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        ratio = sequence_ratio(logprobs, old, trained)
        value, clipped, _ = clipped_policy_loss(ratio, advantages, hyper.clip_low, hyper.clip_high)
        return value, loss.ratio_metrics(ratio, mask, clipped)

    return loss.policy_loss(columns, mask, hyper, surrogate)


def graph(hyper: Hyper) -> Graph:
    """As GRPO's."""
    return pieces.policy_step("gspo", hyper, [grpo.NORMALIZE], "gspo_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = {**shaping.OPS, "gspo_policy_loss": gspo_policy_loss}
