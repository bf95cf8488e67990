"""Statistics over the masked entries of a tensor; what lies outside the mask is never read, be it NaN or
infinite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WHITEN_EPSILON = 1e-8
"""Added to the variance before its root is divided by, as in TRL and verl."""


def inside(values: Tensor, mask: Tensor) -> Tensor:
    """The values, with zero outside the mask. No gradient flows to what lies outside."""
    return values.masked_fill(~mask, 0)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None, epsilon: float = 0.0) -> Tensor:
    """Mean over the masked entries, a scalar or along `dim`; zero where the mask is empty.

    values, mask: of one shape; mask is bool. epsilon: added to the count (see `conventions`).
    """
    kept = inside(values, mask)
    total, count = (kept.sum(), mask.sum()) if dim is None else (kept.sum(dim), mask.sum(dim))
    return total / (count.clamp(min=1).to(values.dtype) + epsilon)


def masked_max(values: Tensor, mask: Tensor) -> Tensor:
    """(n,) the largest masked entry of each row of (n, T); zero where a row has none."""
    if not values.shape[1]:
        return values.sum(1)
    return values.masked_fill(~mask, -float("inf")).amax(1).masked_fill(~mask.any(1), 0)


def masked_var(values: Tensor, mask: Tensor, *, unbiased: bool = True, epsilon: float = 0.0) -> Tensor:
    """Variance over the masked entries, a scalar, in two passes (no cancellation).

    unbiased: divide by count - 1 (the sample variance); else by count. Zero for less than two entries.
    """
    count = mask.sum()
    centred = values - masked_mean(values, mask, epsilon=epsilon)
    biased = masked_mean(inside(centred, mask).square(), mask, epsilon=epsilon)
    return biased * count / (count - 1).clamp(min=1) if unbiased else biased


def masked_whiten(
    values: Tensor, mask: Tensor, *, unbiased: bool = True, shift_mean: bool = True, epsilon: float = 0.0
) -> Tensor:
    """The masked entries shifted and scaled to mean 0 and variance 1; zero outside the mask.

    shift_mean: off, the mean is put back after scaling. Entries that are all equal become zeros, not rounding
    noise divided by itself. Means and variances are taken in float64, the result has the dtype of `values`.
    """
    exact = values.double()
    mean = masked_mean(exact, mask, epsilon=epsilon)
    centred = inside(exact - mean, mask)
    variance = masked_var(exact, mask, unbiased=unbiased, epsilon=epsilon)
    whitened = centred * (variance + WHITEN_EPSILON).rsqrt()
    equal = is_rounding(variance, masked_mean(inside(exact, mask).square(), mask))
    whitened = whitened.masked_fill(equal, 0)
    return (whitened if shift_mean else inside(whitened + mean, mask)).to(values.dtype)


def is_rounding(variance: Tensor, mean_square: Tensor) -> Tensor:
    """Whether numbers of this mean square vary so little (a millionth of themselves) that only rounding
    differs."""
    return variance <= 1e-12 * mean_square


def last_token(mask: Tensor) -> Tensor:
    """(n, T) bool: the last masked token of each row."""
    return mask & (mask.cumsum(1) == mask.sum(1, keepdim=True))


def until_stop(tokens: Tensor, stop_token_ids: Sequence[int]) -> Tensor:
    """(n, T) bool: the tokens up to and including the first stop token of each row; all where there is none."""
    stop = tokens != tokens
    for token_id in stop_token_ids:
        stop = stop | (tokens == token_id)
    return (stop.cumsum(1) - stop.long()) == 0
