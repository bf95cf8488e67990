"""The divergence from a reference policy: estimators, and a coefficient that follows a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from rpeg.algorithms.checks import check_above, check_choice, check_range
from rpeg.errors import InputError, nearest

if TYPE_CHECKING:
    from torch import Tensor

KlEstimator = Literal["k1", "k2", "k3", "abs", "low_variance", "k1+", "k3+", "abs+", "low_variance+"]
KlPlace = Literal["reward", "loss", "none"]

LOG_RATIO_BOUND = 20.0
"""Log ratios are clamped to ± this before they are exponentiated: e^20 is far above any clip, and finite."""
LOW_VARIANCE_BOUND = 10.0
"""What one token may add to the `low_variance` estimate at most."""
ADAPTION_BOUND = 0.2
"""How far off its target, relatively, a divergence counts at most (arXiv:1909.08593)."""


@dataclass(frozen=True)
class KlHyper:
    """kl_in: where the KL to the reference counts: in the reward of each token, in the loss, or nowhere.
    kl_coefficient, kl_estimator: its weight, and see `kl_estimate`. Where it weighs nothing it is not computed.
    """

    kl_in: KlPlace = "none"
    kl_coefficient: float = 0.001
    kl_estimator: KlEstimator = "low_variance"

    @property
    def kl_place(self) -> KlPlace:
        """Where the KL counts for something."""
        return self.kl_in if self.kl_coefficient else "none"

    @property
    def uses_reference(self) -> bool:
        """Whether a reference model must score the responses."""
        return self.kl_place != "none"


def kl_estimate(policy_logprobs: Tensor, reference_logprobs: Tensor, kind: KlEstimator) -> Tensor:
    """KL(policy ‖ reference) estimated at tokens that the policy sampled, elementwise, in nats.

    With r = reference probability / policy probability (Schulman, http://joschu.net/blog/kl-approx.html):
    k1 = -log r, unbiased, may be negative; k2 = (log r)² / 2; k3 = r - 1 - log r, unbiased, never negative;
    abs = |log r|; low_variance = k3 with log r and the result clamped, so that one token cannot drown a
    batch. As a *loss* only k2's gradient is that of the KL on average; k1's is zero on average. With a `+` the
    value is the estimator's and the gradient k2's.
    """
    if kind.endswith("+"):
        value = kl_estimate(policy_logprobs, reference_logprobs, _without_plus(kind))
        straight = kl_estimate(policy_logprobs, reference_logprobs, "k2")
        return straight - straight.detach() + value.detach()
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


def _without_plus(kind: str) -> KlEstimator:
    known: dict[str, KlEstimator] = {name: name for name in get_args(KlEstimator)}
    if kind not in known:
        raise InputError(f"KL estimator '{kind}' is unknown. {nearest(kind, get_args(KlEstimator))}")
    return known[kind.removesuffix("+")]


def next_coefficient(
    coefficient: float, divergence: float, samples: int, *, target: float, horizon: float
) -> float:
    """The KL coefficient for the next step (adaptive controller, arXiv:1909.08593).

    β ← β (1 + clip(divergence / target - 1, ± 0.2) · samples / horizon), the gain of the paper written as in its code
    (https://github.com/openai/lm-human-preferences) and in verl. divergence: of the step's responses,
    in nats, averaged as `target` means it (`kl_penalty` takes the mean over responses of their mean over
    tokens).
    """
    error = min(max(divergence / target - 1, -ADAPTION_BOUND), ADAPTION_BOUND)
    return coefficient * (1 + error * samples / horizon)


def check_kl(kl_in: str, estimator: str, coefficient: float) -> None:
    """InputError unless the three KL hyperparameters go together."""
    check_choice("kl_in", kl_in, get_args(KlPlace))
    check_choice("kl_estimator", estimator, get_args(KlEstimator))
    check_range("kl_coefficient", coefficient, 0.0)
    if kl_in == "loss" and estimator == "k1":
        raise InputError(
            "kl_estimator 'k1' in the loss has a gradient of zero on average and would restrain nothing. "
            "Use 'k1+', 'k2', 'k3' or 'low_variance', or kl_in: reward."
        )


def check_no_kl_in_reward(kl_in: str, algorithm: str) -> None:
    """InputError where an algorithm without token rewards is asked to take the KL off them."""
    if kl_in == "reward":
        raise InputError(
            f"kl_in 'reward' needs token rewards, which {algorithm} has not. Use kl_in: loss, or none."
        )


def check_target(target: float | None, horizon: float, kl_in: str, coefficient: float) -> None:
    """InputError unless an adaptive coefficient has something to adapt."""
    if target is None:
        return
    check_above("kl_target", target, 0.0)
    check_above("kl_horizon", horizon, 0.0)
    if kl_in != "reward" or not coefficient:
        raise InputError(
            f"kl_target adapts the coefficient of a KL in the reward, but kl_in is '{kl_in}' and kl_coefficient "
            f"{coefficient:g}. Use kl_in: reward with a coefficient above 0, or leave kl_target out."
        )
