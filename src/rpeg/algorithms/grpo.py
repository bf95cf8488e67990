"""GRPO: advantages relative to a group of responses to one prompt, no critic (arXiv:2402.03300)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import aggregation, kl, loss, pieces, shaping
from rpeg.algorithms.hyper import DualClipHyper, GroupHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.algorithms.shaping import group_normalize
from rpeg.ir import Graph, Op, Scope

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(DualClipHyper, GroupHyper):
    """The hyperparameters of GRPO; the base classes say what each means."""

    kl_in: kl.KlPlace = "loss"
    loss_aggregation: aggregation.Aggregation = "sequence_mean_token_mean"


def grpo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate, see `loss.policy_loss` for what it reads."""
    return loss.clipped_loss(columns, mask, hyper)


def graph(hyper: Hyper) -> Graph:
    """Responses, their assessment by verifier, reference and actor, advantages within groups, one update."""
    return pieces.policy_step("grpo", hyper, [NORMALIZE], "grpo_policy_loss")


NORMALIZE = Op("group_normalize", Scope.GROUP, ("rollouts", "rewards"), ("advantages",))
OPS: Mapping[str, Callable[..., Any]] = {
    **shaping.OPS,
    "group_normalize": group_normalize,
    "grpo_policy_loss": grpo_policy_loss,
}
