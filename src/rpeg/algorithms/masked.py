"""Statistics over the masked entries of a tensor; what lies outside the mask is never read, be it NaN or
infinite."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WHITEN_EPSILON = 1e-8
"""Added to the variance before its root is divided by, as in TRL and verl."""


def inside(values: Tensor, mask: Tensor) -> Tensor:
    """The values, with zero outside the mask. No gradient flows to what lies outside."""
    return values.masked_fill(~mask, 0)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the masked entries, a scalar; zero where the mask is empty.

    values, mask: of one shape; mask is bool.
    """
    return inside(values, mask).sum() / mask.sum().clamp(min=1)


def masked_var(values: Tensor, mask: Tensor, *, unbiased: bool = True) -> Tensor:
    """Variance over the masked entries, a scalar, in two passes (no cancellation).

    unbiased: divide by count - 1 (the sample variance); else by count. Zero for less than two entries.
    """
    squares = inside(values - masked_mean(values, mask), mask).square().sum()
    return squares / (mask.sum() - int(unbiased)).clamp(min=1)


def masked_whiten(values: Tensor, mask: Tensor, *, unbiased: bool = True) -> Tensor:
    """The masked entries shifted and scaled to mean 0 and variance 1; zero outside the mask.

    Entries that are all equal become zeros, not rounding noise divided by itself. Means and variances are
    taken in float64, the result has the dtype of `values`.
    """
    exact = values.double()
    centred = inside(exact - masked_mean(exact, mask), mask)
    variance = masked_var(exact, mask, unbiased=unbiased)
    whitened = centred * (variance + WHITEN_EPSILON).rsqrt()
    equal = is_rounding(variance, masked_mean(inside(exact, mask).square(), mask))
    return whitened.masked_fill(equal, 0).to(values.dtype)


def is_rounding(variance: Tensor, mean_square: Tensor) -> Tensor:
    """Whether numbers of this mean square vary so little (a millionth of themselves) that only rounding
    differs."""
    return variance <= 1e-12 * mean_square
