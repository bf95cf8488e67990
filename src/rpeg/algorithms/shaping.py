"""Column operations that several algorithms share. See the package for what a column operation is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import corrections, groups, returns
from rpeg.algorithms.hyper import GroupHyper, PolicyHyper, RewardKlHyper
from rpeg.algorithms.kl import next_coefficient
from rpeg.algorithms.loss import Columns, trained_mask
from rpeg.algorithms.masked import masked_mean, masked_whiten

if TYPE_CHECKING:
    from torch import Tensor

KL_COEFFICIENT = "kl_coefficient"


def carried(hyper: object) -> dict[str, float]:
    """What the column operations carry from step to step, by name, with its value before the first.

    A column operation finds it as a scalar column and returns the value for the next step under the same name.
    """
    adapts = isinstance(hyper, RewardKlHyper) and hyper.kl_target is not None
    return {KL_COEFFICIENT: hyper.kl_coefficient} if adapts else {}  # type: ignore[attr-defined]


def kl_penalty(columns: Columns, mask: Tensor, hyper: RewardKlHyper) -> dict[str, Tensor]:
    """`token_rewards` (n, T): a response's reward at its last token, less the KL to the reference at each
    token; with kl_in 'reward' that is `reward_kl` (n, T), and with kl_target the next `kl_coefficient` ().

    Reads `rewards` or `shaped_rewards` (n,); with kl_in 'reward' also `old_logprobs` and `ref_logprobs` (n, T),
    with kl_target also `kl_coefficient` (). An empty response has no token to reward.
    """
    rewards = returns.at_last_token(returns.outcome(columns, mask), mask)
    if hyper.kl_place != "reward":
        return {"token_rewards": rewards}
    coefficient = hyper.kl_coefficient
    if hyper.kl_target is not None:
        coefficient = float(columns[KL_COEFFICIENT])
    old, reference = columns["old_logprobs"], columns["ref_logprobs"]
    rewards, kl = returns.less_kl(rewards, old, reference, mask, hyper.kl_estimator, coefficient)
    if hyper.kl_target is None:
        return {"token_rewards": rewards, "reward_kl": kl}
    divergence = float(masked_mean(masked_mean(kl, mask, 1, hyper.preset.mean_epsilon), mask.any(1)))
    following = next_coefficient(
        coefficient, divergence, len(mask), target=hyper.kl_target, horizon=hyper.kl_horizon
    )
    return {"token_rewards": rewards, "reward_kl": kl, KL_COEFFICIENT: kl.new_tensor(following)}


def group_normalize(columns: Columns, mask: Tensor, hyper: GroupHyper) -> dict[str, Tensor]:
    """`advantages` (n, T): a response's reward less its group's mean, over the group's standard deviation.

    Reads `group` (n,), any integer that the responses to one prompt share, and what `returns.outcome` reads. A group
    of equal rewards, or of one, teaches nothing: its advantages are zero.
    """
    rewards = returns.outcome(columns, mask)
    estimate = groups.normalize_by_group if hyper.normalize_std else groups.center_by_group
    return spread(estimate(rewards, columns["group"], hyper.preset), rewards, mask)


def spread(advantages: Tensor, rewards: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """`advantages` (n, T): those of responses (n,) at each of their tokens, in the dtype of the rewards."""
    return {"advantages": advantages.to(rewards.dtype).unsqueeze(1) * mask}


def whiten(columns: Columns, mask: Tensor, hyper: PolicyHyper) -> dict[str, Tensor]:
    """`advantages` (n, T) with mean 0 and variance 1 over the tokens of the whole batch that are trained on.

    Reads `advantages`, and `loss_mask` where given.
    """
    trained = trained_mask(columns, mask)
    return {"advantages": masked_whiten(columns["advantages"], trained, epsilon=hyper.preset.mean_epsilon)}


def importance(columns: Columns, mask: Tensor, hyper: PolicyHyper) -> dict[str, Tensor]:
    """`importance_weights` (n, T). Reads `old_logprobs` and `behaviour_logprobs`, and `loss_mask` where given."""
    weights, _ = corrections.importance_weights(
        columns["old_logprobs"] - columns["behaviour_logprobs"],
        trained_mask(columns, mask),
        hyper.importance,
        hyper.importance_cap,
        hyper.importance_floor,
        normalize=hyper.importance_normalize,
        epsilon=hyper.preset.mean_epsilon,
    )
    return {"importance_weights": weights}


def loss_mask(columns: Columns, mask: Tensor, hyper: PolicyHyper) -> dict[str, Tensor]:
    """`loss_mask` (n, T): 1 at the response tokens to train on, 0 at those that a correction leaves out.

    Reads what the corrections of `hyper` need: `finish` (n,), `staleness` (n, T), `old_logprobs` and
    `behaviour_logprobs` (n, T).
    """
    kept = mask
    if hyper.truncated == "mask":
        kept = corrections.finished_mask(columns["finish"], kept)
    if hyper.staleness_bound is not None:
        kept = corrections.fresh_mask(columns["staleness"], kept, hyper.staleness_bound)
    if hyper.reject != "none":
        assert hyper.reject_high is not None
        passed, _ = corrections.rejection_mask(
            columns["old_logprobs"] - columns["behaviour_logprobs"],
            mask,
            hyper.reject,
            hyper.reject_estimator,
            hyper.reject_low,
            hyper.reject_high,
            hyper.preset.mean_epsilon,
        )
        kept = kept & passed
    return {"loss_mask": kept.long()}


OPS: Mapping[str, Callable[..., Any]] = {
    "kl_penalty": kl_penalty,
    "group_normalize": group_normalize,
    "whiten": whiten,
    "importance": importance,
    "loss_mask": loss_mask,
}
