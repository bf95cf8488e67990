"""DAPO: GRPO with a higher upper clip, a loss by token, a soft limit of length and dynamic sampling
(arXiv:2503.14476).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import grpo, loss, pieces, returns, shaping
from rpeg.algorithms.hyper import DualClipHyper, GroupHyper
from rpeg.algorithms.loss import Columns, TokenLoss
from rpeg.ir import Graph, Op, Scope

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hyper(DualClipHyper, GroupHyper):
    """The hyperparameters of DAPO; the base classes say what each means.

    overlong_length: tokens of the longest response allowed, best the job's max_response; with it, responses longer
    than overlong_length - overlong_buffer lose up to overlong_factor of reward (None: they lose nothing).
    """

    clip_high: float = 0.28
    dynamic_sampling: bool = True
    overlong_length: int | None = None
    overlong_buffer: int = 4096
    overlong_factor: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        returns.check_overlong(self.overlong_length, self.overlong_buffer, self.overlong_factor)


def overlong(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`shaped_rewards` (n,): `rewards` less the penalty for the length of the response."""
    assert hyper.overlong_length is not None
    penalty = returns.overlong_penalty(mask.sum(1), hyper.overlong_length, hyper.overlong_buffer)
    rewards = columns["rewards"]
    return {"shaped_rewards": rewards + hyper.overlong_factor * penalty.to(rewards.dtype)}


def dapo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate, see `loss.policy_loss` for what it reads."""
    return loss.clipped_loss(columns, mask, hyper)


def graph(hyper: Hyper) -> Graph:
    """As GRPO's, of groups with a signal, the rewards shaped by length where there is a limit."""
    ops = [grpo.NORMALIZE]
    if hyper.overlong_length is not None:
        shaped = ("rollouts", "shaped_rewards")
        ops = [
            Op("overlong", Scope.SAMPLE, ("rollouts", "rewards"), ("shaped_rewards",)),
            Op("group_normalize", Scope.GROUP, shaped, ("advantages",)),
        ]
    return pieces.policy_step("dapo", hyper, ops, "dapo_policy_loss")


OPS: Mapping[str, Callable[..., Any]] = {
    **shaping.OPS,
    "overlong": overlong,
    "dapo_policy_loss": dapo_policy_loss,
}
