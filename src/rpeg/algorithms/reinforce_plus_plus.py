"""REINFORCE++: returns of tokens, normalised over the whole batch, under PPO's clip, no critic (arXiv:2501.03262).

With baseline 'group' it is REINFORCE++-baseline: the mean reward of the responses to a prompt is taken off first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from rpeg.algorithms import groups, kl, loss, pieces, returns, shaping
from rpeg.algorithms.checks import check_choice
from rpeg.algorithms.hyper import DualClipHyper, RewardKlHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.errors import InputError
from rpeg.ir import Graph, Op, Scope

if TYPE_CHECKING:
    from torch import Tensor

Baseline = Literal["none", "group"]


@dataclass(frozen=True)
class Hyper(DualClipHyper, RewardKlHyper):
    """The hyperparameters of REINFORCE++; the base classes say what each means.

    baseline: what is taken off the rewards before they are normalised: nothing, or the mean of the group.
    gamma: discount a token, without a baseline.
    """

    kl_in: kl.KlPlace = "reward"
    kl_estimator: kl.KlEstimator = "k1"
    baseline: Baseline = "none"
    gamma: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("baseline", self.baseline, get_args(Baseline))
        returns.check_discounts(self.gamma)
        if self.baseline == "group" and self.gamma != 1:
            raise InputError(
                f"gamma is {self.gamma:g}, but with baseline 'group' a response's tokens share its advantage. "
                "Leave gamma out, or use baseline: none."
            )


def token_returns(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` (n, T), to be whitened: the discounted rewards from each token on. Reads `token_rewards`."""
    return {"advantages": returns.discounted_returns(columns["token_rewards"], mask, hyper.gamma)}


def group_center(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` (n, T), to be whitened: a response's reward less its group's mean.

    Reads `group` and `token_rewards`.
    """
    rewards = returns.outcome(columns, mask)
    return shaping.spread(groups.center_by_group(rewards, columns["group"], hyper.preset), rewards, mask)


def reinforce_plus_plus_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate, see `loss.policy_loss` for what it reads."""
    return loss.clipped_loss(columns, mask, hyper)


def graph(hyper: Hyper) -> Graph:
    """Responses, their assessment, rewards less the KL, advantages over the batch, one update."""
    if hyper.baseline == "group":
        op = Op("group_center", Scope.GROUP, ("rollouts", "token_rewards"), ("advantages",))
    else:
        op = Op("token_returns", Scope.SAMPLE, ("token_rewards",), ("advantages",))
    ops = [pieces.kl_penalty_op(hyper), op, pieces.whiten_op(hyper)]
    return pieces.policy_step("reinforce_plus_plus", hyper, ops, "reinforce_plus_plus_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = {
    **shaping.OPS,
    "token_returns": token_returns,
    "group_center": group_center,
    "reinforce_plus_plus_policy_loss": reinforce_plus_plus_policy_loss,
}
