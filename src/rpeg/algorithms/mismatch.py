"""Numbers that show when responses are of another policy than the one that learns from them.

Scalars, over the masked tokens of a batch or over its responses. The behaviour policy sampled, the proximal one is the
actor at the beginning of the step (`corrections`). epsilon: see `conventions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rpeg.algorithms.clipping import probability_ratio
from rpeg.algorithms.kl import LOG_RATIO_BOUND, kl_estimate
from rpeg.algorithms.masked import inside, masked_max, masked_mean

if TYPE_CHECKING:
    from torch import Tensor


def effective_share(weights: Tensor, mask: Tensor, epsilon: float = 0.0) -> Tensor:
    """Effective samples over samples, (mean w)² / mean w² (Kong, Univ. of Chicago TR 348, 1992): 1 where all weigh
    alike; 1 too where nothing weighs anything."""
    mean = masked_mean(weights, mask, epsilon=epsilon)
    square = masked_mean(weights.square(), mask, epsilon=epsilon)
    return (mean.square() / square).where(square > 0, 1)


def policy_metrics(old: Tensor, behaviour: Tensor, mask: Tensor, epsilon: float = 0.0) -> dict[str, Tensor]:
    """How far the proximal policy is from the behaviour policy, by their log-probabilities (n, T).

    behaviour_kl: KL(behaviour ‖ proximal) by k1, mean over tokens; behaviour_kl_k3: by k3. behaviour_ratio,
    behaviour_ratio_max: mean and largest ratio of proximal over behaviour probability. behaviour_gap_max: largest
    difference of log-probabilities, either way. effective_share: of the ratios. chi2, chi2_response: mean square of the
    ratio less 1, of tokens and of whole responses. perplexity, behaviour_perplexity: means over responses;
    perplexity_ratio: mean over responses of the first over the second.
    """
    old, behaviour = inside(old, mask), inside(behaviour, mask)
    ratio, some = probability_ratio(old, behaviour), mask.any(1)
    mean_old = masked_mean(old, mask, 1, epsilon)
    mean_behaviour = masked_mean(behaviour, mask, 1, epsilon)
    summed = (old - behaviour).sum(1).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
    return {
        "behaviour_kl": masked_mean(behaviour - old, mask, epsilon=epsilon),
        "behaviour_kl_k3": masked_mean(kl_estimate(behaviour, old, "k3"), mask, epsilon=epsilon),
        "behaviour_ratio": masked_mean(ratio, mask, epsilon=epsilon),
        "behaviour_ratio_max": masked_max(ratio, mask).amax(),
        "behaviour_gap_max": (old - behaviour).abs().amax(),
        "effective_share": effective_share(ratio, mask, epsilon),
        "chi2": masked_mean(ratio.square(), mask, epsilon=epsilon) - 1,
        "chi2_response": masked_mean((2 * summed).exp(), some) - 1,
        "perplexity": masked_mean((-mean_old).exp(), some),
        "behaviour_perplexity": masked_mean((-mean_behaviour).exp(), some),
        "perplexity_ratio": masked_mean((mean_behaviour - mean_old).exp(), some),
    }


def importance_metrics(
    weights: Tensor,
    raw: Tensor,
    mask: Tensor,
    cap: float | None,
    floor: float | None = None,
    epsilon: float = 0.0,
) -> dict[str, Tensor]:
    """What `corrections.importance_weights` has made, not yet scaled to a mean of 1, of the ratios `raw`, both (n, T).

    mean, std (biased), effective_share: of the weights over tokens; min, max: of the ratios. above, below: share of
    tokens whose ratio is beyond cap and below floor (None: 1 / cap). With `response_` before it, of a response's mean
    weight, and of its mean ratio for above and below; response_deviation: the farthest of a mean weight from 1.
    """
    top = cap if cap is not None else float("inf")
    bottom = floor if floor is not None else 1 / top
    responses, some = masked_mean(weights, mask, 1, epsilon), mask.any(1)
    ratios = masked_mean(raw, mask, 1, epsilon)
    mean = masked_mean(weights, mask, epsilon=epsilon)
    variance = masked_mean(weights.square(), mask, epsilon=epsilon) - mean.square()
    kept = responses[some]
    return {
        "mean": mean,
        "std": variance.clamp(min=0).sqrt(),
        "min": raw[mask].amin(),
        "max": raw[mask].amax(),
        "effective_share": effective_share(weights, mask, epsilon),
        "above": masked_mean((raw > top).double(), mask, epsilon=epsilon),
        "below": masked_mean((raw < bottom).double(), mask, epsilon=epsilon),
        "response_mean": kept.mean(),
        "response_std": kept.std() if len(kept) > 1 else kept.mean() * 0,
        "response_min": kept.amin(),
        "response_max": kept.amax(),
        "response_deviation": (kept - 1).abs().amax(),
        "response_above": masked_mean((ratios > top).double(), some),
        "response_below": masked_mean((ratios < bottom).double(), some),
    }


def staleness_histogram(staleness: Tensor, mask: Tensor) -> dict[str, float]:
    """Share of the tokens by the age of the weights that sampled them, as `staleness_0`, `staleness_1` …

    staleness: (n, T) publications between the weights of a token and those that the step began with.
    """
    ages = staleness[mask]
    shares: Mapping[int, int] = {
        int(age): int(count)
        for age, count in zip(*ages.unique(return_counts=True), strict=True)  # type: ignore[no-untyped-call]
    }
    oldest = max(shares, default=0)
    return {f"staleness_{age}": shares.get(age, 0) / max(1, len(ages)) for age in range(oldest + 1)}
