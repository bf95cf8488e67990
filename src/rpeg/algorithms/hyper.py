"""What the hyperparameters of policy losses have in common.

An algorithm's `Hyper` derives from those of these that it has, adds its own, and gives its own defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from rpeg.algorithms.aggregation import AggregationHyper, check_aggregation
from rpeg.algorithms.checks import check_range
from rpeg.algorithms.conventions import PRESETS, Conventions, Name
from rpeg.algorithms.corrections import CorrectionHyper, check_corrections
from rpeg.algorithms.kl import KlHyper, check_kl, check_no_kl_in_reward, check_target
from rpeg.errors import InputError


@dataclass(frozen=True)
class PolicyHyper(CorrectionHyper, AggregationHyper, KlHyper):
    """entropy_coefficient: weight of the entropy bonus, in nats.
    advantage_scale: multiplies every advantage; -1 trains against the reward, the control of a learning check.
    conventions: a preset of `conventions`.
    """

    entropy_coefficient: float = 0.0
    advantage_scale: float = 1.0
    conventions: Name = "rpeg"

    def __post_init__(self) -> None:
        check_corrections(self, self.conventions)
        if self.truncated == "bootstrap" and not self.has_critic:
            raise InputError(
                "truncated is bootstrap: it needs a critic's value after the cut. Use mask, or ppo."
            )
        check_aggregation(self.loss_aggregation, self.fixed_length)
        check_kl(self.kl_in, self.kl_estimator, self.kl_coefficient)
        check_range("entropy_coefficient", self.entropy_coefficient, 0.0)
        check_scale(self.advantage_scale)

    @property
    def loss_weights(self) -> Mapping[str, float]:
        """What each loss op counts beside others of one model, which a plan may share; 1 where it is not named."""
        return {}

    @property
    def has_critic(self) -> bool:
        """Whether values of a critic are at hand."""
        return False

    @property
    def uses_entropy(self) -> bool:
        """Whether the policy loss reads the column `entropy`."""
        return self.entropy_coefficient > 0

    @property
    def preset(self) -> Conventions:
        """The conventions by their name."""
        return PRESETS[self.conventions]


@dataclass(frozen=True)
class RewardKlHyper(PolicyHyper):
    """kl_target: the coefficient of the KL in the reward follows this divergence, in nats, the mean over responses of
    their mean over tokens, beginning at kl_coefficient (None: it stays). kl_horizon: responses over which it adapts;
    see `kl.next_coefficient`.
    """

    kl_target: float | None = None
    kl_horizon: float = 10_000.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_target(self.kl_target, self.kl_horizon, self.kl_in, self.kl_coefficient)


@dataclass(frozen=True)
class GroupHyper(PolicyHyper):
    """normalize_std: divide a group's advantages by its standard deviation.
    dynamic_sampling: train only on groups whose rewards differ, and generate for further prompts until there are enough
    (arXiv:2503.14476, section 3.2); the job's `selection` says how many and for how long.
    """

    normalize_std: bool = True
    dynamic_sampling: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_no_kl_in_reward(self.kl_in, "an advantage by group")


@dataclass(frozen=True)
class ClipHyper(PolicyHyper):
    """clip_low, clip_high: the probability ratio moves a token's loss within [1 - clip_low, 1 + clip_high]."""

    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("clip_low", self.clip_low, 0.0, 1.0)
        check_range("clip_high", self.clip_high, 0.0)


@dataclass(frozen=True)
class DualClipHyper(ClipHyper):
    """dual_clip: ratio beyond which tokens of negative advantage push no further (None: no such bound)."""

    dual_clip: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dual_clip is not None:
            check_range("dual_clip", self.dual_clip, 1.0 + self.clip_high)


def check_scale(advantage_scale: float) -> None:
    """InputError for a scale that would teach nothing or without end."""
    if not advantage_scale or not isfinite(advantage_scale):
        raise InputError(
            f"advantage_scale is {advantage_scale}, must be finite and not 0; 1 is the algorithm as it is"
        )
