"""SAPO: a smooth gate in the place of a clip (arXiv:2511.20347)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import aggregation, grpo, loss, pieces, shaping
from rpeg.algorithms.checks import check_above
from rpeg.algorithms.clipping import probability_ratio
from rpeg.algorithms.hyper import GroupHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.ir import Graph

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(GroupHyper):
    """The hyperparameters of SAPO; the base classes say what the others mean.

    tau_positive, tau_negative: how sharply the gate closes as the ratio leaves 1, for tokens of positive and of other
    advantage; 1 and 1.05 are the paper's.
    """

    tau_positive: float = 1.0
    tau_negative: float = 1.05
    loss_aggregation: aggregation.Aggregation = "sequence_mean_token_mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_above("tau_positive", self.tau_positive, 0.0)
        check_above("tau_negative", self.tau_negative, 0.0)


def sapo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """-A · (4 / τ) · sigmoid(τ (ratio - 1)). See `loss.policy_loss` for what it reads."""

    def surrogate(
        logprobs: Tensor, old: Tensor, advantages: Tensor, trained: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        ratio = probability_ratio(logprobs, old)
        tau = advantages * 0 + hyper.tau_negative
        tau = tau.masked_fill(advantages > 0, hyper.tau_positive)
        gate = (tau * (ratio - 1)).sigmoid() * 4 / tau
        return -gate * advantages, loss.ratio_metrics(ratio, mask, trained & ~trained)

    return loss.policy_loss(columns, mask, hyper, surrogate)


def graph(hyper: Hyper) -> Graph:
    """As GRPO's."""
    return pieces.policy_step("sapo", hyper, [grpo.NORMALIZE], "sapo_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = {**shaping.OPS, "sapo_policy_loss": sapo_policy_loss}
