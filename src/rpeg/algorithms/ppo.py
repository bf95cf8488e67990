"""PPO with a critic (arXiv:1707.06347), as used on language models (arXiv:2203.02155)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import loss, pieces
from rpeg.algorithms.loss import TokenLoss
from rpeg.algorithms.masked import inside, masked_whiten
from rpeg.ir import Graph, Op, Scope

if TYPE_CHECKING:
    from torch import Tensor

Columns = Mapping[str, "Tensor"]


@dataclass(frozen=True)
class Hyper:
    """The hyperparameters of PPO.

    clip_low, clip_high: the probability ratio moves a token's loss within [1 - clip_low, 1 + clip_high].
    dual_clip: ratio beyond which tokens of negative advantage push no further (None: no such bound).
    value_clip: how far a new value may move from the old one before its gradient stops (None: freely).
    gamma, lam: discount a token, and the λ of GAE.
    kl_in: where the KL to the reference counts: in the reward of each token, in the loss, or nowhere.
    entropy_coefficient: weight of the entropy bonus, in nats.
    advantage_scale: multiplies every advantage; -1 trains against the reward, the control of a learning check.
    whiten_advantages: shift and scale the advantages of a whole batch to mean 0, variance 1.
    loss_aggregation, fixed_length: see `loss.token_weights`.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    value_clip: float | None = 0.5
    gamma: float = 1.0
    lam: float = 0.95
    kl_in: loss.KlPlace = "reward"
    kl_coefficient: float = 0.001
    kl_estimator: loss.KlEstimator = "k1"
    entropy_coefficient: float = 0.0
    advantage_scale: float = 1.0
    whiten_advantages: bool = True
    loss_aggregation: loss.Aggregation = "token_mean"
    fixed_length: int | None = None

    def __post_init__(self) -> None:
        loss.check_policy(self)
        if self.value_clip is not None:
            loss.check_range("value_clip", self.value_clip, 0.0)
        loss.check_range("gamma", self.gamma, 0.0, 1.0)
        loss.check_range("lam", self.lam, 0.0, 1.0)

    @property
    def uses_reference(self) -> bool:
        """Whether a reference model must score the responses."""
        return self.kl_in != "none"

    @property
    def uses_entropy(self) -> bool:
        """Whether the policy loss reads the column `entropy`."""
        return self.entropy_coefficient > 0


def kl_penalty(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`token_rewards` (n, T): a response's reward at its last token, less the KL to the reference at each
    token.

    Reads `rewards` (n,); with kl_in 'reward' also `old_logprobs` and `ref_logprobs` (n, T). An empty response
    has no token to reward.
    """
    last = mask & (mask.cumsum(1) == mask.sum(1, keepdim=True))
    rewards = columns["rewards"].unsqueeze(1) * last
    if hyper.kl_in != "reward":
        return {"token_rewards": rewards}
    old, reference = inside(columns["old_logprobs"], mask), inside(columns["ref_logprobs"], mask)
    kl = loss.kl_estimate(old, reference, hyper.kl_estimator)
    return {"token_rewards": rewards - hyper.kl_coefficient * kl}


def gae(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` and `returns` (n, T) by generalised advantage estimation (arXiv:1506.02438, eq. 16).

    Reads `token_rewards` and `values` (n, T). δ_t = r_t + γ V_{t+1} - V_t and A_t = δ_t + γ λ A_{t+1}, where
    t + 1 is the next *masked* token; after the last one value and advantage are zero. returns = advantages +
    values.
    """
    rewards, values = inside(columns["token_rewards"], mask), inside(columns["values"], mask)
    advantages = values.new_zeros(values.shape)
    next_value = next_advantage = values.new_zeros(values.shape[0])
    for t in reversed(range(values.shape[1])):
        here = mask[:, t]
        delta = rewards[:, t] + hyper.gamma * next_value - values[:, t]
        advantage = delta + hyper.gamma * hyper.lam * next_advantage
        advantages[:, t] = inside(advantage, here)
        next_value = values[:, t].where(here, next_value)
        next_advantage = advantage.where(here, next_advantage)
    return {"advantages": advantages, "returns": advantages + values}


def whiten(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` (n, T) with mean 0 and variance 1 over the tokens of the whole batch. Reads
    `advantages`."""
    return {"advantages": masked_whiten(columns["advantages"], mask)}


def ppo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate, less the entropy bonus, plus the KL to the reference where kl_in is 'loss'.

    Reads `logprobs` (with gradient), `old_logprobs`, `advantages`; `entropy` (with gradient) if
    `hyper.uses_entropy`; `ref_logprobs` with kl_in 'loss'. All (n, T).
    """
    return loss.policy_loss(columns, mask, hyper)


def ppo_value_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """Half the squared error to the return; with value_clip the larger of that and the error of the clipped
    value.

    Reads `new_values` (with gradient), `values` (from before the step), `returns`. All (n, T).
    """
    new, old = inside(columns["new_values"], mask), inside(columns["values"], mask)
    returns = inside(columns["returns"], mask)
    error = (new - returns).square()
    clipped = mask & mask.logical_not()
    if hyper.value_clip is not None:
        bounded = old + (new - old).clamp(-hyper.value_clip, hyper.value_clip)
        bounded_error = (bounded - returns).square()
        clipped = bounded_error > error
        error = error.maximum(bounded_error)
    metrics = {
        "value_loss": 0.5 * error,
        "value_clip_fraction": clipped.to(error.dtype),
        "values": new,
        "returns": returns,
    }
    return TokenLoss(0.5 * error, {name: metric.detach() for name, metric in metrics.items()})


def graph(hyper: Hyper) -> Graph:
    """One step: responses, their assessment by verifier, reference, actor and critic, advantages, two updates."""
    advantage_needs = ("old_logprobs", "ref_logprobs") if hyper.kl_in == "reward" else ()
    loss_needs = ("ref_logprobs",) if hyper.kl_in == "loss" else ()
    ops = [
        Op("kl_penalty", Scope.SAMPLE, ("rewards", *advantage_needs), ("token_rewards",)),
        Op("gae", Scope.SAMPLE, ("token_rewards", "values"), ("advantages", "returns")),
    ]
    if hyper.whiten_advantages:
        ops.append(Op("whiten", Scope.BATCH, ("advantages",), ("advantages",)))
    stages = [
        pieces.PROMPTS,
        pieces.GENERATE,
        pieces.REWARD,
        *(
            [pieces.assessment("reference", "reference", "logprob", "ref_logprobs")]
            if hyper.uses_reference
            else []
        ),
        pieces.assessment("old_logprob", "actor", "logprob", "old_logprobs"),
        pieces.assessment("value", "critic", "value", "values"),
        pieces.host("advantage", ops),
        pieces.trainer(
            "train_actor", "actor", "ppo_policy_loss", ("old_logprobs", "advantages", *loss_needs)
        ),
        pieces.trainer("train_critic", "critic", "ppo_value_loss", ("values", "returns")),
    ]
    models = [pieces.ACTOR, pieces.CRITIC, *([pieces.REFERENCE] if hyper.uses_reference else [])]
    return pieces.connect("ppo", models, stages)


OPS: Mapping[str, Callable[..., Any]] = {
    "kl_penalty": kl_penalty,
    "gae": gae,
    "whiten": whiten,
    "ppo_policy_loss": ppo_policy_loss,
    "ppo_value_loss": ppo_value_loss,
}
