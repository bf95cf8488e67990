"""CISPO: every token learns, by its log-probability times a clipped ratio that has no gradient (arXiv:2506.13585)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import grpo, loss, pieces, shaping
from rpeg.algorithms.clipping import probability_ratio
from rpeg.algorithms.hyper import ClipHyper, GroupHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.ir import Graph

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(ClipHyper, GroupHyper):
    """The hyperparameters of CISPO; the base classes say what each means.

    clip_low, clip_high: the ratio weighs a token by at most 1 + clip_high and at least 1 - clip_low. The paper has
    no lower bound and tunes the upper one without saying it; 5 is a common choice (ms-swift's default).
    """

    clip_low: float = 1.0
    clip_high: float = 4.0


def cispo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """-A · clip(ratio) · log π, the clipped ratio a constant. See `loss.policy_loss` for what it reads."""

    def surrogate(
        logprobs: Tensor, old: Tensor, advantages: Tensor, trained: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        ratio = probability_ratio(logprobs, old).detach()
        weight = ratio.clamp(1.0 - hyper.clip_low, 1.0 + hyper.clip_high)
        return -weight * advantages * logprobs, loss.ratio_metrics(ratio, mask, ratio != weight)

    return loss.policy_loss(columns, mask, hyper, surrogate)


def graph(hyper: Hyper) -> Graph:
    """As GRPO's."""
    return pieces.policy_step("cispo", hyper, [grpo.NORMALIZE], "cispo_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = {**shaping.OPS, "cispo_policy_loss": cispo_policy_loss}
