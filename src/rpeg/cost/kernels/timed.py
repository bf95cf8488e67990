"""`Timed`: what a kernel takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpeg.cost.kernels.work import Amount


@dataclass(frozen=True, slots=True)
class Timed:
    """A kernel or many alike: seconds, FLOP, bytes of device memory moved, and whether a table was asked.

    All have the form of what was asked: numbers, or arrays. measured: by kernels timed on this very kind of device.
    """

    seconds: Amount
    flops: Amount
    bytes: Amount
    measured: bool = False


def largest(a: Amount, b: Amount) -> Amount:
    """The larger, entry by entry where either is an array."""
    if isinstance(a, float | int) and isinstance(b, float | int):
        return a if a > b else b
    return np.maximum(a, b)
