"""Numbers that show how far the policy that sampled is from the one that learns."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rpeg.algorithms.kl import kl_estimate
from rpeg.algorithms.masked import inside
from rpeg.backends.samples import Samples


def batch_metrics(samples: Samples, step: int) -> dict[str, float]:
    """Of samples as a trainer gets them: their tokens, mean and largest staleness (in publications)."""
    staleness = step - samples.token["versions"]
    tokens = float(samples.lengths.sum())
    if not tokens:
        return {"tokens": tokens, "staleness": 0.0, "staleness_max": 0.0}
    return {"tokens": tokens, "staleness": float(staleness.mean()), "staleness_max": float(staleness.max())}


def behaviour_kl(columns: Mapping[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    """`kl_behaviour_current` (n, T): KL of the behaviour policy from that of the update, low-variance, a token."""
    if "behaviour_logprobs" not in columns or "logprobs" not in columns:
        return {}
    behaviour, current = (inside(columns[name].detach(), mask) for name in ("behaviour_logprobs", "logprobs"))
    return {"kl_behaviour_current": inside(kl_estimate(behaviour, current, "low_variance"), mask)}
