"""Rewards of tokens and what follows from them: returns, advantages over a critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rpeg.algorithms.checks import check_above, check_range
from rpeg.algorithms.kl import KlEstimator, kl_estimate
from rpeg.algorithms.masked import inside, last_token
from rpeg.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


def outcome(columns: Mapping[str, Tensor], mask: Tensor) -> Tensor:
    """(n,) what each response has earned: the sum of `token_rewards` where there are any, else `shaped_rewards`,
    else `rewards`."""
    if "token_rewards" in columns:
        return inside(columns["token_rewards"], mask).sum(1)
    return columns["shaped_rewards"] if "shaped_rewards" in columns else columns["rewards"]


def at_last_token(rewards: Tensor, mask: Tensor) -> Tensor:
    """(n, T) rewards (n,) at the last masked token of each response; an empty response has none to reward."""
    return rewards.unsqueeze(1) * last_token(mask)


def less_kl(
    token_rewards: Tensor,
    logprobs: Tensor,
    ref_logprobs: Tensor,
    mask: Tensor,
    estimator: KlEstimator,
    coefficient: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """(token rewards less coefficient · KL, the KL), both (n, T) and zero outside the mask."""
    kl = kl_estimate(inside(logprobs, mask), inside(ref_logprobs, mask), estimator)
    return inside(token_rewards, mask) - coefficient * kl, kl


def generalized_advantages(
    token_rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float,
    lam: float,
    final_values: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns (n, T) by generalised advantage estimation (arXiv:1506.02438, eq. 16).

    δ_t = r_t + γ V_{t+1} - V_t and A_t = δ_t + γ λ A_{t+1}, where t + 1 is the next *masked* token: what the
    policy did not choose (padding, observations between turns) takes no part. After the last one the advantage is
    zero and the value too, or `final_values` (n,) for responses that were cut and would have gone on.
    returns = advantages + values.
    """
    rewards, values = inside(token_rewards, mask), inside(values, mask)
    advantages = values.new_zeros(values.shape)
    next_advantage = values.new_zeros(values.shape[0])
    next_value = next_advantage if final_values is None else final_values
    for t in reversed(range(values.shape[1])):
        here = mask[:, t]
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        advantage = delta + gamma * lam * next_advantage
        advantages[:, t] = inside(advantage, here)
        next_value = values[:, t].where(here, next_value)
        next_advantage = advantage.where(here, next_advantage)
    return advantages, advantages + values


def discounted_returns(token_rewards: Tensor, mask: Tensor, gamma: float = 1.0) -> Tensor:
    """(n, T) G_t = r_t + γ G_{t+1} over the masked tokens; zero outside."""
    rewards = inside(token_rewards, mask)
    returns = rewards.new_zeros(rewards.shape)
    following = rewards.new_zeros(rewards.shape[0])
    for t in reversed(range(rewards.shape[1])):
        here = rewards[:, t] + gamma * following
        returns[:, t] = inside(here, mask[:, t])
        following = here.where(mask[:, t], following)
    return returns


def overlong_penalty(lengths: Tensor, longest: int, buffer: int) -> Tensor:
    """(n,) the length penalty of DAPO (arXiv:2503.14476, eq. 13), from 0 down to -1.

    None up to longest - buffer tokens, then evenly down to -1 at `longest` and beyond.
    """
    return ((longest - buffer - lengths.double()) / buffer).clamp(-1, 0)


def check_overlong(longest: int | None, buffer: int, factor: float) -> None:
    """InputError unless the buffer lies within the longest response."""
    if longest is None:
        return
    check_above("overlong_length", longest, 0)
    check_range("overlong_factor", factor, 0.0)
    if not 1 <= buffer <= longest:
        raise InputError(
            f"overlong_buffer is {buffer}, must lie in [1, overlong_length], which is {longest}: the penalty grows "
            "over the last overlong_buffer tokens before it."
        )


def check_discounts(gamma: float, lam: float = 1.0) -> None:
    """InputError unless both lie in [0, 1]."""
    check_range("gamma", gamma, 0.0, 1.0)
    check_range("lam", lam, 0.0, 1.0)
