"""`Lengths`: how long prompts or responses are, as a histogram."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.errors import InputError
from rpeg.fields import Fields

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# A fitted tail is kept as at most so many values, each the mean of a part of equal width in log(length).
_MOST_VALUES = 512


@dataclass(frozen=True)
class Lengths:
    """Token counts and how often each occurs.

    values: ascending, at least 1. weights: positive, of the same number; they are normalised to sum 1.
    """

    values: tuple[int, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values or len(self.values) != len(self.weights):
            raise InputError(
                f"lengths need values with one weight each: {len(self.values)}, {len(self.weights)}"
            )
        if self.values[0] < 1 or any(a >= b for a, b in zip(self.values, self.values[1:], strict=False)):
            raise InputError(f"lengths {self.values[:4]} … are to be at least 1 and strictly ascending")
        if not all(0 < weight < math.inf for weight in self.weights):
            raise InputError("every weight of a length is to be positive and finite")
        total = math.fsum(self.weights)
        # normalising twice must change nothing, so that a value that was read back equals the one written
        if not math.isclose(total, 1.0, rel_tol=1e-12):
            object.__setattr__(self, "weights", tuple(weight / total for weight in self.weights))

    @cached_property
    def mean(self) -> float:
        """Mean length in tokens."""
        return math.fsum(v * w for v, w in zip(self.values, self.weights, strict=True))

    @property
    def maximum(self) -> int:
        """The longest length that occurs."""
        return self.values[-1]

    @cached_property
    def _cumulative(self) -> Floats:
        return np.cumsum(self.weights)

    def percentile(self, percent: float) -> int:
        """The least length that `percent` % of all do not exceed."""
        return int(self.quantiles(np.array([percent / 100.0]))[0])

    def quantiles(self, uniform: Floats) -> Ints:
        """Lengths at probabilities in [0, 1], of the same shape: the inverse of the distribution."""
        # the last cumulative weight may miss 1 by a rounding error: leave it out of the search
        index = np.searchsorted(self._cumulative[:-1], uniform - 1e-12, side="left")
        return np.asarray(self.values, dtype=np.int64)[index]

    def truncated(self, longest: int) -> Lengths:
        """The lengths of responses that are cut at `longest` tokens."""
        return _histogram(np.minimum(self.values, longest), np.asarray(self.weights))

    def scaled(self, mean: float) -> Lengths:
        """All lengths in proportion, such that their mean is `mean` tokens (but for rounding, and at least 1 each)."""
        return self._of_shape(np.asarray(self.values, dtype=np.float64), mean)

    def with_tail(self, share: float) -> Lengths:
        """Of the same mean, with the ratio of 99th percentile to median so many times what it is, at least 1.

        Lengths go to a power: a lognormal stays one. None exceeds the longest that was there where share is at most 1.
        """
        ratio = self.percentile(99) / self.percentile(50)
        power = max(0.0, 1 + math.log(share) / math.log(ratio)) if ratio > 1 else 1.0
        return self._of_shape(np.asarray(self.values, dtype=np.float64) ** power, self.mean)

    def _of_shape(self, shape: Floats, mean: float) -> Lengths:
        weights = np.asarray(self.weights)
        return _histogram(
            np.maximum(1, np.rint(shape * mean / float(shape @ weights))).astype(np.int64), weights
        )

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {"values": list(self.values), "weights": list(self.weights)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Lengths:
        """The histogram that `to_json` wrote. InputError names a missing or an unknown field."""
        fields = Fields("lengths", data)
        lengths = Lengths(fields.wholes("values"), fields.numbers("weights"))
        fields.finish()
        return lengths


def constant(length: int) -> Lengths:
    """Every length is the same."""
    return Lengths((length,), (1.0,))


def observed(lengths: Sequence[int] | Ints) -> Lengths:
    """The histogram of lengths that were seen."""
    if len(lengths) == 0:
        raise InputError("no lengths were observed: at least one is needed")
    return _histogram(np.asarray(lengths, dtype=np.int64), np.ones(len(lengths)))


def geometric(mean: float, longest: int) -> Lengths:
    """Each token is the last with the same probability, cut at `longest`: p fitted so that the mean holds."""
    _check_mean(mean, longest)

    def survival(p: float) -> Callable[[Floats], Floats]:
        return lambda x: np.exp(np.floor(x) * math.log1p(-p))

    # the mean of the cut distribution is (1 − (1−p)^longest) / p: falls as p rises
    p = _bisect(lambda q: -(1 - (1 - q) ** longest) / q, -mean, 1e-9, 1 - 1e-9)
    return _discretise(survival(p), longest)


def lognormal(mean: float, longest: int, *, p95: float | None = None, sigma: float = 0.6) -> Lengths:
    """A lognormal tail cut at `longest`, where the cut mass gathers, fitted so that the mean holds.

    p95: 95th percentile of the uncut tail; where it is given it fixes the width, else `sigma` (standard
    deviation of log length) does. InputError when no lognormal has this mean and percentile.
    """
    _check_mean(mean, longest)
    if p95 is None:
        return _lognormal(mean, longest, sigma)
    if not mean < p95 <= longest:
        raise InputError(f"p95 = {p95:g} is to lie between the mean {mean:g} and the longest {longest}")
    widths = np.linspace(0.02, 3.0, 150)
    percentile = [_location(mean, longest, width) + width * NormalDist().inv_cdf(0.95) for width in widths]
    # p95 rises with the width, then falls as ever rarer long lengths hold the mean: take the first width
    best = int(np.argmax(percentile))
    if math.log(p95) > percentile[best]:
        raise InputError(f"no lognormal of mean {mean:g} cut at {longest} has its p95 at {p95:g}")
    return _lognormal(
        mean, longest, float(np.interp(math.log(p95), percentile[: best + 1], widths[: best + 1]))
    )


def _lognormal(mean: float, longest: int, sigma: float) -> Lengths:
    location = _location(mean, longest, sigma)

    def survival(x: Floats) -> Floats:
        # continuity: a length n stands for (n − 1/2, n + 1/2]
        return 1 - normal_cdf((np.log(x + 0.5) - location) / sigma)

    return _discretise(survival, longest)


def _location(mean: float, longest: int, sigma: float) -> float:
    """The mean of log length for which a lognormal cut at `longest` has this mean."""

    def cut_mean(location: float) -> float:
        cut = (math.log(longest) - location) / sigma
        below = math.exp(location + sigma**2 / 2) * NormalDist().cdf(cut - sigma)
        return below + longest * (1 - NormalDist().cdf(cut))

    return _bisect(cut_mean, mean, math.log(mean) - sigma**2 - 4, math.log(longest) + 8 * sigma + 1)


def _discretise(survival: Callable[[Floats], Floats], longest: int) -> Lengths:
    """A histogram of 1 … longest; survival(x) is P(length > x), and all beyond counts as longest."""
    ends = np.unique(np.round(np.geomspace(1, longest, min(longest, _MOST_VALUES))).astype(np.int64))
    if longest <= _MOST_VALUES:
        ends = np.arange(1, longest + 1)
    above = survival(ends.astype(np.float64))
    weights = np.concatenate([[1.0], above[:-1]]) - np.concatenate([above[:-1], [0.0]])
    starts = np.concatenate([[0], ends[:-1]]) + 1
    values = np.where(ends == longest, longest, (starts + ends) // 2)
    return _histogram(values, weights)


def _histogram(values: npt.NDArray[Any], weights: Floats) -> Lengths:
    unique, inverse = np.unique(values, return_inverse=True)
    summed = np.bincount(inverse, weights=weights)
    kept = summed > 0
    return Lengths(tuple(int(v) for v in unique[kept]), tuple(float(w) for w in summed[kept]))


def _check_mean(mean: float, longest: int) -> None:
    if not 1 <= mean < longest:
        raise InputError(f"the mean length {mean:g} is to be at least 1 and below the longest, {longest}")


def normal_cdf(x: Floats) -> Floats:
    """The standard normal distribution function, element by element."""
    root = math.sqrt(2.0)
    return np.array([0.5 * (1.0 + math.erf(v / root)) for v in np.ravel(x).tolist()]).reshape(np.shape(x))


def _bisect(rising: Callable[[float], float], target: float, low: float, high: float) -> float:
    """Where a rising function reaches the target, to machine precision."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < target else (low, middle)
    return (low + high) / 2
