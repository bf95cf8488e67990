"""What the losses of all algorithms share: their result, and the policy loss round a surrogate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rpeg.algorithms.clipping import clipped_policy_loss, probability_ratio
from rpeg.algorithms.hyper import DualClipHyper, PolicyHyper
from rpeg.algorithms.kl import kl_estimate
from rpeg.algorithms.masked import inside

if TYPE_CHECKING:
    from torch import Tensor

Columns = Mapping[str, "Tensor"]
Surrogate = Callable[["Tensor", "Tensor", "Tensor", "Tensor"], "tuple[Tensor, Mapping[str, Tensor]]"]
"""(logprobs, old_logprobs, advantages, mask), all (n, T) and the first three zero outside the mask, to (loss a token,
metrics a token); only `logprobs` has a gradient."""


@dataclass(frozen=True)
class TokenLoss:
    """A loss a token, before aggregation.

    loss: (n, T), zero outside the mask and at tokens that `loss_mask` leaves out, with gradient.
    metrics: (n, T) each, zero outside the mask, without gradient; the caller averages them over the masked
    tokens, or takes the largest where the name ends in `_max`.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


def weighted_sum(losses: Sequence[tuple[float, TokenLoss]]) -> TokenLoss:
    """The loss of one model that several (weight, loss) pull at, with the metrics of all; a single one as it is."""
    if len(losses) == 1:
        return losses[0][1]
    total = sum((weight * found.loss for weight, found in losses[1:]), losses[0][0] * losses[0][1].loss)
    return TokenLoss(total, {name: metric for _, found in losses for name, metric in found.metrics.items()})


def trained_mask(columns: Columns, mask: Tensor) -> Tensor:
    """(n, T) bool: the response tokens that the loss is of: all, or those in `loss_mask` where that is given."""
    return mask & (columns["loss_mask"] > 0) if "loss_mask" in columns else mask


def policy_loss(columns: Columns, mask: Tensor, hyper: PolicyHyper, surrogate: Surrogate) -> TokenLoss:
    """The surrogate, less the entropy bonus, plus the KL to the reference where kl_in is 'loss'.

    Reads `logprobs` (with gradient), `old_logprobs` (default: the same, in an update on the weights that the step
    began with), `advantages`; `importance_weights` and `loss_mask` where given; `entropy` (with gradient) if
    `hyper.uses_entropy`; `ref_logprobs` with kl_in 'loss'. All (n, T). Metrics: policy_loss, approx_kl (of the old
    policy from the current), those of the surrogate; entropy and ref_kl where they are used.
    """
    trained = trained_mask(columns, mask)
    logprobs = inside(columns["logprobs"], trained)
    old = inside(columns["old_logprobs"], trained) if "old_logprobs" in columns else logprobs.detach()
    advantages = hyper.advantage_scale * inside(columns["advantages"], trained)
    loss, found = surrogate(logprobs, old, advantages, trained)
    if "importance_weights" in columns:
        loss = loss * inside(columns["importance_weights"], trained)
    approx_kl = kl_estimate(old, logprobs, "low_variance")
    metrics = {"policy_loss": loss, "approx_kl": approx_kl, **found}
    if hyper.uses_entropy:
        entropy = inside(columns["entropy"], trained)
        loss = loss - hyper.entropy_coefficient * entropy
        metrics["entropy"] = entropy
    if hyper.kl_place == "loss":
        kl = kl_estimate(logprobs, inside(columns["ref_logprobs"], trained), hyper.kl_estimator)
        loss = loss + hyper.kl_coefficient * kl
        metrics["ref_kl"] = kl
    return TokenLoss(loss, {name: metric.detach() for name, metric in metrics.items()})


def clipped_loss(columns: Columns, mask: Tensor, hyper: DualClipHyper) -> TokenLoss:
    """`policy_loss` of PPO's clipped surrogate."""
    dual_clip = hyper.dual_clip

    def surrogate(
        logprobs: Tensor, old: Tensor, advantages: Tensor, trained: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        ratio = probability_ratio(logprobs, old)
        loss, clipped, over = clipped_policy_loss(
            ratio, advantages, hyper.clip_low, hyper.clip_high, dual_clip
        )
        metrics = ratio_metrics(ratio, mask, clipped)
        return loss, (
            metrics | {"dual_clip_fraction": over.to(loss.dtype)} if dual_clip is not None else metrics
        )

    return policy_loss(columns, mask, hyper, surrogate)


def ratio_metrics(ratio: Tensor, mask: Tensor, clipped: Tensor) -> dict[str, Tensor]:
    """`ratio` and `ratio_max` of current over old probability, `clip_fraction` of tokens whose gradient a clip cut."""
    ratio = inside(ratio, mask)
    return {"ratio": ratio, "ratio_max": ratio, "clip_fraction": clipped.to(ratio.dtype)}
