"""Numbers that show how far the policy that sampled is from the one that learns."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rpeg.algorithms.kl import kl_estimate
from rpeg.algorithms.masked import inside
from rpeg.algorithms.mismatch import policy_metrics, staleness_histogram
from rpeg.backends.samples import Samples
from rpeg.runtime.inputs import padded_columns

BEHAVIOUR, OLD = "behaviour_logprobs", "old_logprobs"


def batch_metrics(samples: Samples, step: int) -> dict[str, float]:
    """Of samples as a trainer gets them: their tokens, and their staleness in publications (mean, largest, shares).

    Where both are known, also how far the policy that the step began with is from the behaviour policy.
    """
    tokens = float(samples.lengths.sum())
    if not tokens:
        return {"tokens": tokens, "staleness": 0.0, "staleness_max": 0.0}
    names = [name for name in ("versions", OLD, BEHAVIOUR) if name in samples.token]
    columns, mask = padded_columns(samples.columns(names), torch.float64)
    staleness = step - columns["versions"]
    metrics = {
        "tokens": tokens,
        "staleness": float(staleness[mask].double().mean()),
        "staleness_max": float(staleness[mask].max()),
        **staleness_histogram(staleness, mask),
    }
    if OLD in columns and BEHAVIOUR in columns:
        found = policy_metrics(columns[OLD], columns[BEHAVIOUR], mask)
        metrics.update({name: float(value) for name, value in found.items()})
    return metrics


def behaviour_kl(columns: Mapping[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    """`behaviour_kl_current` (n, T): KL of the behaviour policy from that of the update, low-variance, a token."""
    if BEHAVIOUR not in columns or "logprobs" not in columns:
        return {}
    behaviour, current = (inside(columns[name].detach(), mask) for name in (BEHAVIOUR, "logprobs"))
    return {"behaviour_kl_current": inside(kl_estimate(behaviour, current, "low_variance"), mask)}
