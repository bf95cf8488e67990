"""What the losses of all algorithms share: their result, aggregation weights and KL estimators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, overload

import numpy as np
import numpy.typing as npt

from rpeg.algorithms.masked import inside
from rpeg.errors import InputError, nearest

if TYPE_CHECKING:
    from torch import Tensor

Aggregation = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "fixed_length"]
KlEstimator = Literal["k1", "k2", "k3", "abs", "low_variance"]
KlPlace = Literal["reward", "loss", "none"]

LOG_RATIO_BOUND = 20.0
"""Log ratios are clamped to ± this before they are exponentiated: e^20 is far above any clip, and finite."""
LOW_VARIANCE_BOUND = 10.0
"""What one token may add to the `low_variance` estimate at most."""


@dataclass(frozen=True)
class TokenLoss:
    """A loss a token, before aggregation.

    loss: (n, T), zero outside the mask, with gradient.
    metrics: (n, T) each, zero outside the mask, without gradient; the caller averages them over the masked
    tokens.
    """

    loss: Tensor
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


@overload
def token_weights(
    lengths: npt.NDArray[Any], kind: Aggregation, fixed_length: int | None = None
) -> npt.NDArray[np.float64]: ...
@overload
def token_weights(lengths: Tensor, kind: Aggregation, fixed_length: int | None = None) -> Tensor: ...


def token_weights(
    lengths: npt.NDArray[Any] | Tensor, kind: Aggregation, fixed_length: int | None = None
) -> npt.NDArray[np.float64] | Tensor:
    """The weight of each token of each response in the loss: loss = Σ_i w_i Σ_t loss[i, t].

    lengths: (n,) response lengths of the *whole* minibatch, over all data-parallel ranks and micro-batches,
    so that no split changes the gradient. Returns (n,) float64 of the same kind (numpy or tensor).

    - token_mean: 1 / Σ lengths, each token counts alike (DAPO, arXiv:2503.14476).
    - sequence_mean_token_mean: 1 / (n · length), each response counts alike (GRPO, arXiv:2402.03300).
    - sequence_mean_token_sum: 1 / n, the policy gradient of the mean return.
    - fixed_length: 1 / (n · fixed_length), the same up to a constant (Dr. GRPO, arXiv:2503.20783).

    An empty response has no token to weigh; it counts in n, and its weight is finite.
    Raises InputError for an unknown kind, or for `fixed_length` without a length.
    """
    check_aggregation(kind, fixed_length)
    exact: Any = np.asarray(lengths, np.float64) if isinstance(lengths, np.ndarray) else lengths.double()
    divisor = {
        "token_mean": exact * 0 + exact.sum(),
        "sequence_mean_token_mean": len(exact) * exact,
        "sequence_mean_token_sum": exact * 0 + len(exact),
        "fixed_length": exact * 0 + len(exact) * (fixed_length or 1),
    }[kind]
    weights: npt.NDArray[np.float64] | Tensor = 1.0 / divisor.clip(1)
    return weights


def kl_estimate(policy_logprobs: Tensor, reference_logprobs: Tensor, kind: KlEstimator) -> Tensor:
    """KL(policy ‖ reference) estimated at tokens that the policy sampled, elementwise, in nats.

    With r = reference probability / policy probability (Schulman, http://joschu.net/blog/kl-approx.html):
    k1 = -log r, unbiased, may be negative; k2 = (log r)² / 2; k3 = r - 1 - log r, unbiased, never negative;
    abs = |log r|; low_variance = k3 with log r and the result clamped, so that one token cannot drown a
    batch. As a *loss* only k2's gradient is that of the KL on average; k1's is zero on average.
    """
    log_ratio = reference_logprobs - policy_logprobs
    if kind == "k1":
        return -log_ratio
    if kind == "k2":
        return 0.5 * log_ratio * log_ratio
    if kind == "abs":
        return log_ratio.abs()
    if kind == "k3":
        return log_ratio.expm1() - log_ratio
    if kind == "low_variance":
        bounded = log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        return (bounded.expm1() - bounded).clamp(max=LOW_VARIANCE_BOUND)
    raise InputError(f"KL estimator '{kind}' is unknown. {nearest(kind, get_args(KlEstimator))}")


def probability_ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """exp(logprobs - old_logprobs), finite: the log ratio is clamped to ± LOG_RATIO_BOUND."""
    return (logprobs - old_logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def clipped_policy_loss(
    ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float, dual_clip: float | None
) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate to be minimised, elementwise, and where a clip cut off the gradient (bool).

    max(-A·ratio, -A·clip(ratio, 1 - clip_low, 1 + clip_high)) (PPO, arXiv:1707.06347; unequal bounds: DAPO,
    arXiv:2503.14476); where A < 0 at most -A·dual_clip (dual-clip PPO, arXiv:1912.09729).
    """
    free = -advantages * ratio
    bound = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = free.maximum(bound)
    clipped = bound > free
    if dual_clip is not None:
        ceiling = -advantages * dual_clip
        over = (advantages < 0) & (loss > ceiling)
        loss, clipped = ceiling.where(over, loss), clipped | over
    return loss, clipped


class PolicyHyper(Protocol):
    """The hyperparameters that `policy_loss` reads."""

    @property
    def clip_low(self) -> float: ...
    @property
    def clip_high(self) -> float: ...
    @property
    def dual_clip(self) -> float | None: ...
    @property
    def kl_in(self) -> KlPlace: ...
    @property
    def kl_coefficient(self) -> float: ...
    @property
    def kl_estimator(self) -> KlEstimator: ...
    @property
    def entropy_coefficient(self) -> float: ...
    @property
    def advantage_scale(self) -> float: ...
    @property
    def loss_aggregation(self) -> Aggregation: ...
    @property
    def fixed_length(self) -> int | None: ...


def policy_loss(columns: Mapping[str, Tensor], mask: Tensor, hyper: PolicyHyper) -> TokenLoss:
    """The clipped surrogate, less the entropy bonus, plus the KL to the reference where kl_in is 'loss'.

    Reads `logprobs` (with gradient), `old_logprobs`, `advantages`; `entropy` (with gradient) where it has a
    coefficient; `ref_logprobs` with kl_in 'loss'. All (n, T). Metrics: policy_loss, ratio, clip_fraction,
    approx_kl (k3 of the old policy), entropy, ref_kl, the latter two where they are used.
    """
    logprobs, old = inside(columns["logprobs"], mask), inside(columns["old_logprobs"], mask)
    ratio = probability_ratio(logprobs, old)
    advantages = hyper.advantage_scale * inside(columns["advantages"], mask)
    loss, clipped = clipped_policy_loss(ratio, advantages, hyper.clip_low, hyper.clip_high, hyper.dual_clip)
    metrics = {
        "policy_loss": loss,
        "ratio": inside(ratio, mask),
        "clip_fraction": clipped.to(loss.dtype),
        "approx_kl": kl_estimate(old, logprobs, "low_variance"),
    }
    if hyper.entropy_coefficient > 0:
        entropy = inside(columns["entropy"], mask)
        loss = loss - hyper.entropy_coefficient * entropy
        metrics["entropy"] = entropy
    if hyper.kl_in == "loss":
        kl = kl_estimate(logprobs, inside(columns["ref_logprobs"], mask), hyper.kl_estimator)
        loss = loss + hyper.kl_coefficient * kl
        metrics["ref_kl"] = kl
    return TokenLoss(loss, {name: metric.detach() for name, metric in metrics.items()})


def check_scale(advantage_scale: float) -> None:
    """InputError for a scale that would teach nothing or without end."""
    if not advantage_scale or not np.isfinite(advantage_scale):
        raise InputError(
            f"advantage_scale is {advantage_scale}, must be finite and not 0; 1 is the algorithm as it is"
        )


def check_policy(hyper: PolicyHyper) -> None:
    """InputError where a hyperparameter that all policy losses have is out of its range."""
    check_clips(hyper.clip_low, hyper.clip_high, hyper.dual_clip)
    check_range("entropy_coefficient", hyper.entropy_coefficient, 0.0)
    check_scale(hyper.advantage_scale)
    check_kl(hyper.kl_in, hyper.kl_estimator, hyper.kl_coefficient)
    check_aggregation(hyper.loss_aggregation, hyper.fixed_length)


def check_clips(clip_low: float, clip_high: float, dual_clip: float | None) -> None:
    """InputError unless the bounds of the probability ratio make sense."""
    check_range("clip_low", clip_low, 0.0, 1.0)
    check_range("clip_high", clip_high, 0.0)
    if dual_clip is not None:
        check_range("dual_clip", dual_clip, 1.0 + clip_high)


def check_aggregation(kind: str, fixed_length: int | None) -> None:
    """InputError unless the kind is known and has the length that it needs."""
    check_choice("loss_aggregation", kind, get_args(Aggregation))
    if kind == "fixed_length" and (fixed_length is None or fixed_length < 1):
        raise InputError(
            f"loss_aggregation 'fixed_length' divides by fixed_length, which is {fixed_length}. "
            "Set fixed_length to the longest response allowed, in tokens."
        )


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """InputError unless the value of the hyperparameter is one of those known."""
    if value not in known:
        raise InputError(f"{name} '{value}' is unknown. {nearest(str(value), known)}")


def check_range(name: str, value: float, low: float, high: float = float("inf")) -> None:
    """InputError unless low <= value <= high (NaN is in no range)."""
    if not low <= value <= high:
        raise InputError(f"{name} is {value}, but must lie in [{low:g}, {high:g}].")


def check_kl(kl_in: str, estimator: str, coefficient: float) -> None:
    """InputError unless the three KL hyperparameters go together."""
    check_choice("kl_in", kl_in, get_args(KlPlace))
    check_choice("kl_estimator", estimator, get_args(KlEstimator))
    check_range("kl_coefficient", coefficient, 0.0)
    if kl_in == "loss" and estimator == "k1":
        raise InputError(
            "kl_estimator 'k1' in the loss has a gradient of zero on average and would restrain nothing. "
            "Use 'k2', 'k3' or 'low_variance', or kl_in: reward."
        )
