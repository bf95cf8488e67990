"""REINFORCE: log-probabilities times advantages over a baseline that needs no critic, without clips.

(Williams, Machine Learning 8, 1992.) With baseline 'length_weighted' it is OPO (arXiv:2505.23585); with 'group' and
`scale_by_scored` GPG (arXiv:2504.02546).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from rpeg.algorithms import groups, loss, pieces, returns, shaping
from rpeg.algorithms.checks import check_choice
from rpeg.algorithms.hyper import RewardKlHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.ir import Graph, Op, Scope

if TYPE_CHECKING:
    from torch import Tensor

Baseline = Literal["none", "batch", "group", "leave_one_out", "length_weighted", "best_of_group"]


@dataclass(frozen=True)
class Hyper(RewardKlHyper):
    """The hyperparameters of REINFORCE; the base classes say what each means.

    baseline: what is taken off a response's reward: nothing; the mean of the batch; of its group; of the others of its
    group; of its group by length; or the second best of its group, where it is the best, others learning nothing
    (pass@k, arXiv:2503.19595).
    whiten_advantages: shift and scale the advantages of a whole batch to mean 0, variance 1.
    scale_by_scored: multiply advantages by responses over responses with a reward.
    """

    baseline: Baseline = "batch"
    whiten_advantages: bool = False
    scale_by_scored: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("baseline", self.baseline, get_args(Baseline))

    @property
    def scope(self) -> Scope:
        """What the baseline looks at."""
        if self.baseline == "batch" or self.scale_by_scored:
            return Scope.BATCH
        return Scope.SAMPLE if self.baseline == "none" else Scope.GROUP


def baseline(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` (n, T): what a response has earned less the baseline, at each of its tokens.

    Reads `token_rewards`, and `group` (n,) where the baseline is of groups.
    """
    rewards = returns.outcome(columns, mask)
    advantages = _less_baseline(rewards, columns, mask, hyper)
    if hyper.scale_by_scored:
        advantages = advantages * groups.scale_of_scored(rewards)
    return shaping.spread(advantages, rewards, mask)


def _less_baseline(rewards: Tensor, columns: Columns, mask: Tensor, hyper: Hyper) -> Tensor:
    if hyper.baseline == "none":
        return rewards
    if hyper.baseline == "batch":
        return groups.center_by_group(rewards, mask.sum(1) * 0)
    group = columns["group"]
    if hyper.baseline == "leave_one_out":
        return groups.leave_one_out(rewards, group, hyper.preset)
    if hyper.baseline == "best_of_group":
        return groups.best_of_group(rewards, group, normalize=False)
    weights = mask.sum(1) if hyper.baseline == "length_weighted" else None
    return groups.center_by_group(rewards, group, hyper.preset, weights)


def reinforce_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """-A · log π, see `loss.policy_loss` for what it reads."""

    def surrogate(
        logprobs: Tensor, old: Tensor, advantages: Tensor, trained: Tensor
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        return -advantages * logprobs, {}

    return loss.policy_loss(columns, mask, hyper, surrogate)


def graph(hyper: Hyper) -> Graph:
    """Responses, their assessment, advantages over the baseline, one update."""
    needs = ("rollouts", "token_rewards")
    ops = [pieces.kl_penalty_op(hyper), Op("baseline", hyper.scope, needs, ("advantages",))]
    if hyper.whiten_advantages:
        ops.append(pieces.whiten_op(hyper))
    return pieces.policy_step("reinforce", hyper, ops, "reinforce_policy_loss", needs_old=False)


OPS: Mapping[str, Callable[..., Any]] = {
    **shaping.OPS,
    "baseline": baseline,
    "reinforce_policy_loss": reinforce_policy_loss,
}
