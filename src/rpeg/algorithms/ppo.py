"""PPO with a critic (arXiv:1707.06347), as used on language models (arXiv:2203.02155)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import kl, loss, pieces, returns, shaping
from rpeg.algorithms.checks import check_above, check_range
from rpeg.algorithms.hyper import DualClipHyper, RewardKlHyper
from rpeg.algorithms.loss import Columns, TokenLoss, trained_mask
from rpeg.algorithms.masked import inside
from rpeg.algorithms.shaping import kl_penalty, whiten
from rpeg.ir import Graph, Op, Scope

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(DualClipHyper, RewardKlHyper):
    """The hyperparameters of PPO; the base classes say what the others mean.

    value_clip: how far a new value may move from the old one before its gradient stops (None: freely).
    gamma, lam: discount a token, and the λ of GAE.
    whiten_advantages: shift and scale the advantages of a whole batch to mean 0, variance 1.

    Where a plan lets actor and critic share a backbone, and only there:
    value_loss_weight: of the value loss beside the policy loss (c1 in eq. 9 of PPO; 0.1 as `vf_coef` of TRL's
    `PPOConfig`, whose value loss is halved too). The value head learns with it.
    value_gradient_scale: multiplies the values' gradient where it enters the backbone; 0 leaves that to the actor.
    """

    kl_in: kl.KlPlace = "reward"
    kl_estimator: kl.KlEstimator = "k1"
    value_clip: float | None = 0.5
    gamma: float = 1.0
    lam: float = 0.95
    whiten_advantages: bool = True
    value_loss_weight: float = 0.1
    value_gradient_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.value_clip is not None:
            check_range("value_clip", self.value_clip, 0.0)
        returns.check_discounts(self.gamma, self.lam)
        check_above("value_loss_weight", self.value_loss_weight, 0.0)
        check_range("value_gradient_scale", self.value_gradient_scale, 0.0, 1.0)

    @property
    def has_critic(self) -> bool:
        return True

    @property
    def loss_weights(self) -> Mapping[str, float]:
        return {"ppo_value_loss": self.value_loss_weight}


def gae(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` and `returns` (n, T), see `returns.generalized_advantages`. Reads `token_rewards` and `values`.

    A response that was cut counts as ended, unless truncated is `bootstrap`: then its `final_values` (n,), zero for those
    that ended by themselves, stand for what would have come.
    """
    advantages, found = returns.generalized_advantages(
        columns["token_rewards"],
        columns["values"],
        mask,
        gamma=hyper.gamma,
        lam=hyper.lam,
        final_values=columns["final_values"] if hyper.truncated == "bootstrap" else None,
    )
    return {"advantages": advantages, "returns": found}


def ppo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate, see `loss.policy_loss` for what it reads."""
    return loss.clipped_loss(columns, mask, hyper)


def ppo_value_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """Half the squared error to the return; with value_clip the larger of that and the error of the clipped
    value.

    Reads `new_values` (with gradient), `values` (from before the step), `returns`; `loss_mask` where given.
    All (n, T).
    """
    trained = trained_mask(columns, mask)
    new, old = inside(columns["new_values"], trained), inside(columns["values"], trained)
    found = inside(columns["returns"], trained)
    error = (new - found).square()
    clipped = trained & ~trained
    if hyper.value_clip is not None:
        bounded = old + (new - old).clamp(-hyper.value_clip, hyper.value_clip)
        bounded_error = (bounded - found).square()
        clipped = bounded_error > error
        error = error.maximum(bounded_error)
    metrics = {
        "value_loss": 0.5 * error,
        "value_clip_fraction": clipped.to(error.dtype),
        "values": new,
        "returns": found,
    }
    return TokenLoss(0.5 * error, {name: metric.detach() for name, metric in metrics.items()})


def graph(hyper: Hyper) -> Graph:
    """Responses, their assessment by verifier, reference, actor and critic, advantages, two updates."""
    ops = [
        pieces.kl_penalty_op(hyper),
        Op("gae", Scope.SAMPLE, ("token_rewards", *pieces.values(hyper)), ("advantages", "returns")),
    ]
    if hyper.whiten_advantages:
        ops.append(pieces.whiten_op(hyper))
    return pieces.policy_step("ppo", hyper, ops, "ppo_policy_loss", value_loss_op="ppo_value_loss")


OPS: Mapping[str, Callable[..., Any]] = {
    **shaping.OPS,
    "kl_penalty": kl_penalty,
    "whiten": whiten,
    "gae": gae,
    "ppo_policy_loss": ppo_policy_loss,
    "ppo_value_loss": ppo_value_loss,
}
