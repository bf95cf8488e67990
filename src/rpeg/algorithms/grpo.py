"""GRPO: advantages relative to a group of responses to one prompt, no critic (arXiv:2402.03300).

With normalize_std off and loss_aggregation fixed_length it is Dr. GRPO (arXiv:2503.20783).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rpeg.algorithms import loss, pieces
from rpeg.algorithms.loss import TokenLoss
from rpeg.algorithms.masked import is_rounding
from rpeg.errors import InputError
from rpeg.ir import Graph, Op, Scope

if TYPE_CHECKING:
    from torch import Tensor

Columns = Mapping[str, "Tensor"]

STD_EPSILON = 1e-6
"""Added to a group's standard deviation before it is divided by, as in verl."""


@dataclass(frozen=True)
class Hyper:
    """The hyperparameters of GRPO.

    clip_low, clip_high: the probability ratio moves a token's loss within [1 - clip_low, 1 + clip_high].
    dual_clip: ratio beyond which tokens of negative advantage push no further (None: no such bound).
    normalize_std: divide a group's advantages by its standard deviation; off in Dr. GRPO.
    kl_in: where the KL to the reference counts: in the loss or nowhere.
    entropy_coefficient: weight of the entropy bonus, in nats.
    advantage_scale: multiplies every advantage; -1 trains against the reward, the control of a learning check.
    loss_aggregation, fixed_length: see `loss.token_weights`.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    normalize_std: bool = True
    kl_in: loss.KlPlace = "loss"
    kl_coefficient: float = 0.001
    kl_estimator: loss.KlEstimator = "low_variance"
    entropy_coefficient: float = 0.0
    advantage_scale: float = 1.0
    loss_aggregation: loss.Aggregation = "sequence_mean_token_mean"
    fixed_length: int | None = None

    def __post_init__(self) -> None:
        loss.check_policy(self)
        if self.kl_in == "reward":
            raise InputError(
                "kl_in 'reward' needs token rewards, which GRPO has not. Use kl_in: loss, or none."
            )

    @property
    def uses_reference(self) -> bool:
        """Whether a reference model must score the responses."""
        return self.kl_in != "none"

    @property
    def uses_entropy(self) -> bool:
        """Whether the policy loss reads the column `entropy`."""
        return self.entropy_coefficient > 0


def group_normalize(columns: Columns, mask: Tensor, hyper: Hyper) -> dict[str, Tensor]:
    """`advantages` (n, T): a response's reward less its group's mean, over the group's standard deviation.

    Reads `rewards` and `group` (n,), group being any integer that the responses to one prompt share. The
    deviation is the sample's (divided by count - 1). A group of equal rewards, or of one, teaches nothing:
    its advantages are zero.
    """
    centred, std = center_by_group(columns["rewards"], columns["group"])
    advantages = centred / (std + STD_EPSILON) if hyper.normalize_std else centred
    return {"advantages": advantages.to(columns["rewards"].dtype).unsqueeze(1) * mask}


def center_by_group(rewards: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """(rewards less their group's mean, standard deviation of their group), both (n,) float64.

    Two passes in float64, so that rewards that nearly cancel keep their digits; what only rounding tells
    apart is 0.
    """
    labels, member = group.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    empty = rewards.double().new_zeros(labels.shape[0])

    def total(values: Tensor) -> Tensor:
        return empty.index_add(0, member, values)

    exact = rewards.double()
    count = total(exact * 0 + 1)
    centred = exact - (total(exact) / count)[member]
    variance = total(centred.square()) / (count - 1).clamp(min=1)
    equal = is_rounding(variance, total(exact.square()) / count)[member]
    return centred.masked_fill(equal, 0), variance.sqrt()[member]


def grpo_policy_loss(columns: Columns, mask: Tensor, hyper: Hyper) -> TokenLoss:
    """The clipped surrogate, less the entropy bonus, plus the KL to the reference where kl_in is 'loss'.

    Reads `logprobs` (with gradient), `old_logprobs`, `advantages`; `entropy` (with gradient) if
    `hyper.uses_entropy`; `ref_logprobs` with kl_in 'loss'. All (n, T).
    """
    return loss.policy_loss(columns, mask, hyper)


def graph(hyper: Hyper) -> Graph:
    """One step: responses, their assessment by verifier, reference and actor, advantages within groups, one update."""
    loss_needs = ("ref_logprobs",) if hyper.uses_reference else ()
    ops = [Op("group_normalize", Scope.GROUP, ("rollouts", "rewards"), ("advantages",))]
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
        pieces.host("advantage", ops),
        pieces.trainer(
            "train_actor", "actor", "grpo_policy_loss", ("old_logprobs", "advantages", *loss_needs)
        ),
    ]
    models = [pieces.ACTOR, *([pieces.REFERENCE] if hyper.uses_reference else [])]
    return pieces.connect("grpo", models, stages)


OPS: Mapping[str, Callable[..., Any]] = {
    "group_normalize": group_normalize,
    "grpo_policy_loss": grpo_policy_loss,
}
