"""ReMax: the reward of the greedy response to a prompt as the baseline of its sampled ones (arXiv:2310.10505)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import kl, loss, pieces, returns, shaping
from rpeg.algorithms.hyper import DualClipHyper, RewardKlHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.ir import Call, Graph, Kind, Op, Scope, Stage

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(DualClipHyper, RewardKlHyper):
    """The hyperparameters of ReMax; the base classes say what each means."""

    kl_in: kl.KlPlace = "reward"
    kl_estimator: kl.KlEstimator = "k1"


def greedy_baseline(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` (n, T): the rewards from each token on, less the reward of the greedy response.

    Reads `token_rewards` (n, T) and `baseline_rewards` (n,).
    """
    baseline = columns["baseline_rewards"].unsqueeze(1) * mask
    return {"advantages": returns.discounted_returns(columns["token_rewards"], mask) - baseline}


def remax_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate, see `loss.policy_loss` for what it reads."""
    return loss.clipped_loss(columns, mask, hyper)


BASELINE = Stage(
    "baseline",
    Kind.GENERATE,
    (Call("actor", (Op("sample_greedy", Scope.SAMPLE, ("prompts",), ("baseline_rollouts",)),)),),
)
BASELINE_REWARD = Stage(
    "baseline_reward",
    Kind.HOST,
    (Call(None, (Op("verify", Scope.SAMPLE, ("baseline_rollouts",), ("baseline_rewards",)),)),),
)


def graph(hyper: Hyper) -> Graph:
    """Sampled and greedy responses, their assessment, advantages over the greedy one, one update."""
    needs = ("token_rewards", "baseline_rewards")
    ops = [
        pieces.kl_penalty_op(hyper),
        Op("greedy_baseline", Scope.SAMPLE, needs, ("advantages",)),
    ]
    sources = (BASELINE, BASELINE_REWARD)
    return pieces.policy_step("remax", hyper, ops, "remax_policy_loss", sources=sources)


OPS: Mapping[str, Callable[..., Any]] = {
    **shaping.OPS,
    "greedy_baseline": greedy_baseline,
    "remax_policy_loss": remax_policy_loss,
}
