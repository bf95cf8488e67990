"""Baselines among the responses to one prompt.

`group` is (n,) of any integers that the responses to one prompt share. Sums are taken in float64 in two passes,
so that rewards that nearly cancel keep their digits; what only rounding tells apart is equal, and equals teach
nothing: exactly zero, never noise over noise. Results are (n,) float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rpeg.algorithms.conventions import RPEG, Conventions
from rpeg.algorithms.masked import is_rounding

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """Sums within groups. member: (n,) which group each response is in, from 0. count: (n,) of its group."""

    member: Tensor
    labels: int
    count: Tensor

    def total(self, values: Tensor) -> Tensor:
        """(n,) float64: the sum of `values` (n,) over each response's group."""
        exact = values.double()
        return exact.new_zeros(self.labels).index_add(0, self.member, exact)[self.member]


def groups_of(group: Tensor) -> Groups:
    labels, member, counts = group.unique(return_inverse=True, return_counts=True)  # type: ignore[no-untyped-call]
    return Groups(member, len(labels), counts[member])


def center_by_group(
    rewards: Tensor, group: Tensor, conventions: Conventions = RPEG, weights: Tensor | None = None
) -> Tensor:
    """Rewards (n,) less their group's mean, by `weights` (n,) where given.

    With response lengths as weights: the optimal baseline of OPO (arXiv:2505.23585).
    """
    groups = groups_of(group)
    exact, weight = rewards.double(), (weights if weights is not None else rewards * 0 + 1).double()
    mass = groups.total(weight)
    centred = exact - groups.total(exact * weight) / mass.where(mass > 0, 1)
    centred = centred.masked_fill(_are_equal(groups, exact), 0)
    return _with_lone(centred, exact, groups, conventions)


def normalize_by_group(rewards: Tensor, group: Tensor, conventions: Conventions = RPEG) -> Tensor:
    """Rewards (n,) less their group's mean, over its standard deviation (GRPO, arXiv:2402.03300, section 4.1.2).

    The deviation is the sample's (divided by count - 1), plus `conventions.std_epsilon`.
    """
    groups = groups_of(group)
    centred = center_by_group(rewards, group, conventions)
    std = _variance(groups, rewards.double()).sqrt()
    std = std.masked_fill(groups.count < 2, 1)
    return centred / (std + conventions.std_epsilon)


def leave_one_out(rewards: Tensor, group: Tensor, conventions: Conventions = RPEG) -> Tensor:
    """Rewards (n,) less the mean of the *others* of their group (RLOO, arXiv:2402.14740).

    As (r - mean) · count / (count - 1), which cancels no digits.
    """
    count = groups_of(group).count
    return center_by_group(rewards, group, conventions) * count / (count - 1).clamp(min=1)


def decoupled_normalize(
    rewards: Tensor, group: Tensor, weights: Sequence[float] | None = None, conventions: Conventions = RPEG
) -> Tensor:
    """Σ_k weights[k] · `normalize_by_group` of the k-th kind of reward (GDPO, arXiv:2601.05242).

    rewards: (n, kinds). No kind drowns another by its scale. GDPO then whitens over the tokens of the batch.
    """
    kinds = rewards.shape[1]
    scales = [1.0] * kinds if weights is None else list(weights)
    parts = [
        s * normalize_by_group(rewards[:, k], group, conventions)
        for k, s in zip(range(kinds), scales, strict=True)
    ]
    return sum(parts[1:], parts[0])


def best_of_group(
    rewards: Tensor, group: Tensor, *, normalize: bool = True, conventions: Conventions = RPEG
) -> Tensor:
    """The best response of each group gets its lead over the second best, others zero (arXiv:2503.19595).

    normalize: over the group's standard deviation. A response without a peer gets zero.
    """
    groups = groups_of(group)
    exact = rewards.double()
    lead = exact * 0
    for label in range(groups.labels):
        here = groups.member == label
        if here.sum() > 1:
            second = exact[here].topk(2).values[1]
            lead = lead + (exact - second).clamp(min=0) * here
    return lead / (_variance(groups, exact).sqrt() + conventions.std_epsilon) if normalize else lead


def scale_of_scored(rewards: Tensor) -> Tensor:
    """How many responses there are for each whose reward is not zero: the scale of GPG
    (arXiv:2504.02546) as verl counts it."""
    return len(rewards) / (rewards != 0).sum().clamp(min=1).double()


def informative(rewards: Tensor, group: Tensor) -> Tensor:
    """(n,) bool: the responses of groups whose rewards differ, by more than rounding.

    The others have advantage zero: DAPO's dynamic sampling (arXiv:2503.14476, section 3.2) draws other prompts
    in their place.
    """
    return ~_are_equal(groups_of(group), rewards.double())


def _variance(groups: Groups, exact: Tensor) -> Tensor:
    centred = exact - groups.total(exact) / groups.count
    return groups.total(centred.square()) / (groups.count - 1).clamp(min=1)


def _are_equal(groups: Groups, exact: Tensor) -> Tensor:
    mean_square = groups.total(exact.square()) / groups.count
    return is_rounding(_variance(groups, exact), mean_square)


def _with_lone(centred: Tensor, exact: Tensor, groups: Groups, conventions: Conventions) -> Tensor:
    return exact.where(groups.count == 1, centred) if conventions.lone == "raw" else centred
