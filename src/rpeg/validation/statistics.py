"""How far predictions are from measurements: errors, bias, ranks, and what fits into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
APART = 1.1  # two measurements are apart when one is more than a tenth larger
FEWEST_RANKED = 3  # two values always correlate


@dataclass(frozen=True)
class Statistics:
    """Of one group of records.

    count: records that could be compared; predicted: those that were. The others are over the predicted, as shares,
    and None where there are too few. Of (predicted − measured) / measured: mape is the mean magnitude, median_ape and
    p90_ape its 50th and 90th percentile (linear between ranks), bias the mean with its sign. spearman: correlation of
    ranks, ties averaged. ordered: share of the pairs with measurements more than 10 % apart whose predictions are in
    the same order; pairs: how many there are.
    """

    count: int
    predicted: int
    mape: float | None = None
    median_ape: float | None = None
    p90_ape: float | None = None
    bias: float | None = None
    spearman: float | None = None
    ordered: float | None = None
    pairs: int = 0


def statistics(count: int, measured: Sequence[float], predicted: Sequence[float]) -> Statistics:
    """Of `count` records, for those of which both numbers are given; all positive."""
    x, y = np.asarray(measured, np.float64), np.asarray(predicted, np.float64)
    if not len(x):
        return Statistics(count, 0)
    error = (y - x) / x
    size = np.abs(error)
    right, pairs = ordered_pairs(x, y)
    return Statistics(
        count,
        len(x),
        mape=float(size.mean()),
        median_ape=float(np.percentile(size, 50)),
        p90_ape=float(np.percentile(size, 90)),
        bias=float(error.mean()),
        spearman=spearman(x, y),
        ordered=right / pairs if pairs else None,
        pairs=pairs,
    )


def spearman(x: Floats, y: Floats) -> float | None:
    """Correlation of ranks; None for fewer than three values, or where one side is constant."""
    if len(x) < FEWEST_RANKED:
        return None
    a, b = ranks(x) - (len(x) + 1) / 2, ranks(y) - (len(y) + 1) / 2
    norm = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else None


def ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Floats = (last - (counts - 1) / 2)[inverse]
    return mean


def ordered_pairs(measured: Floats, predicted: Floats) -> tuple[int, int]:
    """(pairs ordered right, pairs) of measurements more than 10 % apart; equal predictions are wrong."""
    order = np.argsort(measured, kind="stable")
    x, y = measured[order], predicted[order]
    right = pairs = 0
    for i, start in enumerate(np.searchsorted(x, x * APART, side="right")):
        above = y[start:]
        pairs += len(above)
        right += int((above > y[i]).sum())
    return right, pairs


@dataclass(frozen=True)
class Fits:
    """What was seen to fit into memory beside what was predicted: (predicted to fit, predicted not to).

    ran: settings that ran. oom: those that ended for lack of memory. crashed: those that ended for that or another
    reason, of which some would have fitted.
    """

    ran: tuple[int, int] = (0, 0)
    oom: tuple[int, int] = (0, 0)
    crashed: tuple[int, int] = (0, 0)

    @property
    def false_alarms(self) -> float | None:
        """Share of the settings that ran which were predicted not to fit."""
        return self.ran[1] / sum(self.ran) if sum(self.ran) else None

    @property
    def right(self) -> float | None:
        """Share of all settings predicted as they went, crashes counted as lack of memory."""
        total = sum(self.ran) + sum(self.oom) + sum(self.crashed)
        return (self.ran[0] + self.oom[1] + self.crashed[1]) / total if total else None


def fits(seen: Sequence[tuple[bool, bool, bool]]) -> Fits:
    """Counts of (fitted, confirmed, predicted to fit)."""
    counts = {"ran": [0, 0], "oom": [0, 0], "crashed": [0, 0]}
    for fitted, confirmed, predicted in seen:
        counts["ran" if fitted else "oom" if confirmed else "crashed"][0 if predicted else 1] += 1
    ran, oom, crashed = ((c[0], c[1]) for c in counts.values())
    return Fits(ran, oom, crashed)
