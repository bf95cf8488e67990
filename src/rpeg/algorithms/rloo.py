"""RLOO: a response's reward less the mean of the others' to the same prompt (arXiv:2402.14740)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import groups, kl, loss, pieces, returns, shaping
from rpeg.algorithms.hyper import DualClipHyper, RewardKlHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.ir import Graph, Op, Scope

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(DualClipHyper, RewardKlHyper):
    """The hyperparameters of RLOO; the base classes say what each means.

    The paper takes a response for one action and its KL off its reward; with several minibatches a step the clips keep
    the policy near the one that responded.
    """

    kl_in: kl.KlPlace = "reward"
    kl_estimator: kl.KlEstimator = "k1"


def leave_one_out(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` (n, T): a response's reward less the mean of the other responses' in its group.

    Reads `group` (n,) and what `returns.outcome` reads. A group of equal rewards, or of one, teaches nothing.
    """
    rewards = returns.outcome(columns, mask)
    return shaping.spread(groups.leave_one_out(rewards, columns["group"], hyper.preset), rewards, mask)


def rloo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate, see `loss.policy_loss` for what it reads."""
    return loss.clipped_loss(columns, mask, hyper)


def graph(hyper: Hyper) -> Graph:
    """Responses, their assessment, rewards less the KL, advantages within groups, one update."""
    ops = [
        pieces.kl_penalty_op(hyper),
        Op("leave_one_out", Scope.GROUP, ("rollouts", "token_rewards"), ("advantages",)),
    ]
    return pieces.policy_step("rloo", hyper, ops, "rloo_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = {
    **shaping.OPS,
    "leave_one_out": leave_one_out,
    "rloo_policy_loss": rloo_policy_loss,
}
