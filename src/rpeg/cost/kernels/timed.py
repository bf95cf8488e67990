"""`Timed`: what a kernel takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rpeg.cost.kernels.work import Amount


class Timed(NamedTuple):
    """A kernel or many alike: seconds, FLOP, bytes of device memory moved, and whether a table was asked.

    All have the form of what was asked: numbers, or arrays. measured: by kernels timed on this very kind of device.
    A named tuple, because costs make hundreds of them for a stage.
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


def smallest(a: Amount, b: Amount) -> Amount:
    """The smaller, entry by entry where either is an array."""
    return -largest(-a, -b)
