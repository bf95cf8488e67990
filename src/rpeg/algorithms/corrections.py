"""What is done about responses of another policy than the one that learns from them.

The behaviour policy sampled them: an older version of the weights, another engine, another precision. The proximal
policy is the actor at the beginning of the step, whose log-probabilities are `old_logprobs`. With `importance` the
loss is that of decoupled PPO (arXiv:2110.00641; for asynchronous training arXiv:2505.24298): clipped about the proximal
policy, weighted by proximal over behaviour probability, which is truncated at `importance_cap` (truncated importance
sampling for an engine that differs from the trainer: https://fengyao.notion.site/off-policy-rl).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING, Literal, get_args

from rpeg.algorithms.checks import check_above, check_choice, check_pair, check_range
from rpeg.algorithms.conventions import Name
from rpeg.algorithms.kl import LOG_RATIO_BOUND, kl_estimate
from rpeg.algorithms.masked import inside, masked_max, masked_mean
from rpeg.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

Importance = Literal["none", "token", "sequence"]
RejectBy = Literal["none", "token", "sequence_sum", "sequence_mean", "sequence_max"]
RejectEstimator = Literal["k1", "k2", "k3"]
Truncated = Literal["train", "mask", "bootstrap"]


@dataclass(frozen=True)
class CorrectionHyper:
    """importance: weigh each token's loss by how likelier the actor is than the behaviour policy, by token or by whole
    response. importance_cap: weights above count as this much (None: uncapped). importance_floor: with it, tokens
    outside [importance_floor, importance_cap] weigh nothing (IcePop). importance_normalize: scale the weights of a
    batch to mean 1.
    reject: leave out tokens or responses where actor and behaviour policy are too far apart, by `reject_estimator` of
    KL(behaviour ‖ actor): a token's own, or the sum, mean or maximum over its response. Kept is what lies within
    [reject_low, reject_high]; k1 is compared by its exponential, the ratio behaviour over actor.
    staleness_bound: leave out tokens that weights more than so many publications old have sampled.
    truncated: train on responses that were cut at the longest allowed as on others, mask them, or (with a critic)
    bootstrap: the critic's value after the cut stands for what would have come.
    """

    importance: Importance = "none"
    importance_cap: float | None = 2.0
    importance_floor: float | None = None
    importance_normalize: bool = False
    reject: RejectBy = "none"
    reject_estimator: RejectEstimator = "k1"
    reject_low: float | None = None
    reject_high: float | None = None
    staleness_bound: int | None = None
    truncated: Truncated = "train"

    @property
    def uses_loss_mask(self) -> bool:
        """Whether some response tokens may be left out of the loss."""
        return self.reject != "none" or self.staleness_bound is not None or self.truncated == "mask"


def importance_weights(
    log_ratio: Tensor,
    mask: Tensor,
    level: Importance,
    cap: float | None,
    floor: float | None = None,
    *,
    normalize: bool = False,
    epsilon: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """(weights, the same before cap, floor and scaling), both (n, T), zero outside the mask, without gradient.

    log_ratio: (n, T) log of proximal over behaviour probability. level sequence: the product over a response, at each
    of its tokens. floor: what lies outside [floor, cap] weighs nothing. normalize: to a mean of 1 over the tokens, or
    over the responses (by the mean of their tokens' weights). epsilon: see `conventions`.
    """
    exact = inside(log_ratio, mask).detach()
    if level == "sequence":
        exact = exact.sum(1, keepdim=True).expand_as(log_ratio)
    raw = inside(exact.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp(), mask)
    top = inf if cap is None else cap
    weights = raw.clamp(max=top) if floor is None else raw.masked_fill((raw < floor) | (raw > top), 0)
    if normalize:
        if level == "sequence":
            mean = masked_mean(masked_mean(weights, mask, 1, epsilon), mask.any(1))
        else:
            mean = masked_mean(weights, mask, epsilon=epsilon)
        weights = (weights / mean).where(mean > 1e-8, weights)
    return weights, raw


def rejection_mask(
    log_ratio: Tensor,
    mask: Tensor,
    by: RejectBy,
    estimator: RejectEstimator,
    low: float | None,
    high: float,
    epsilon: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """(what is kept, (n, T) bool within the mask; what it was decided by, (n, T) in nats).

    log_ratio: (n, T) log of proximal over behaviour probability. low, high: bounds of the estimate, for k1 of its
    exponential; low None is 1 / high for k1, and no bound otherwise.
    """
    bounded = inside(log_ratio, mask).detach().clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    decided = kl_estimate(bounded * 0, bounded, estimator)
    if by != "token":
        row = {
            "sequence_sum": decided.sum(1),
            "sequence_mean": masked_mean(decided, mask, 1, epsilon),
            "sequence_max": masked_max(decided, mask),
        }[by]
        decided = row.unsqueeze(1).expand_as(log_ratio)
    bottom, top = rejection_bounds(estimator, low, high)
    return mask & (decided >= bottom) & (decided <= top), inside(decided, mask)


def rejection_bounds(estimator: RejectEstimator, low: float | None, high: float) -> tuple[float, float]:
    """(least, most) that an estimate may be, in nats."""
    if estimator == "k1":
        return (log(low) if low is not None else -log(high)), log(high)
    return (low if low is not None else -inf), high


def fresh_mask(staleness: Tensor, mask: Tensor, bound: int) -> Tensor:
    """(n, T) bool: the tokens whose weights were at most `bound` publications old."""
    return mask & (staleness <= bound)


def finished_mask(finish: Tensor, mask: Tensor) -> Tensor:
    """(n, T) bool: the tokens of responses that ended by themselves (finish 1), none of those that were cut (0)."""
    return mask & (finish > 0).unsqueeze(1)


def check_corrections(hyper: CorrectionHyper, conventions: Name) -> None:
    """InputError where a correction cannot be what was meant."""
    check_choice("importance", hyper.importance, get_args(Importance))
    check_choice("conventions", conventions, get_args(Name))
    check_choice("truncated", hyper.truncated, get_args(Truncated))
    if hyper.importance_cap is not None:
        check_above("importance_cap", hyper.importance_cap, 0.0)
    if hyper.importance_floor is not None:
        check_above("importance_floor", hyper.importance_floor, 0.0)
        top = hyper.importance_cap if hyper.importance_cap is not None else inf
        check_pair("importance_floor", hyper.importance_floor, "importance_cap", top)
    if hyper.staleness_bound is not None:
        check_range("staleness_bound", hyper.staleness_bound, 0)
    _check_rejection(hyper)


def _check_rejection(hyper: CorrectionHyper) -> None:
    check_choice("reject", hyper.reject, get_args(RejectBy))
    check_choice("reject_estimator", hyper.reject_estimator, get_args(RejectEstimator))
    low, high = hyper.reject_low, hyper.reject_high
    if hyper.reject == "none":
        if low is not None or high is not None:
            raise InputError(
                "reject_low and reject_high bound what `reject` keeps, which is 'none'. Set reject."
            )
        return
    if high is None:
        raise InputError(
            f"reject '{hyper.reject}' keeps what is at most reject_high, which is missing. Set it."
        )
    if hyper.reject == "sequence_max" and hyper.reject_estimator == "k1":
        raise InputError(
            "reject 'sequence_max' with reject_estimator 'k1' looks at one sign only. Use k2 or k3."
        )
    check_above("reject_high", high, 0.0)
    if low is not None:
        check_above("reject_low", low, 0.0)
        check_pair("reject_low", low, "reject_high", high)
