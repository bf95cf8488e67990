"""`Generation`: what a GENERATE stage takes, and when each sample is there."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rpeg.cost.tree import Cost

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Generation:
    """The whole gang's generation; it ends when its slowest replica does.

    cost: seconds of the slowest replica, work of all. offsets: (samples,) seconds from the start until each sample is
    complete, in input order. replica_seconds: (replicas,) until each replica is done. tokens: generated in all.
    places: sequences that a replica runs at once. preempted: samples that lost their cache to others and were
    prefilled again.
    """

    cost: Cost
    offsets: Floats
    replica_seconds: Floats
    tokens: int
    places: int
    preempted: int = 0

    @property
    def seconds(self) -> float:
        """Until all samples are complete."""
        return self.cost.seconds

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens of all replicas over the whole time."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    def completed(self, part: int | float) -> float:
        """Seconds until so many samples (whole number), or that share of them (a float up to 1.0), are complete."""
        count = len(self.offsets)
        samples = math.ceil(part * count - 1e-9) if isinstance(part, float) else part
        if not 0 <= samples <= count:
            raise ValueError(
                f"{part} of {count} samples asked: a whole number up to {count}, or a share up to 1.0"
            )
        return float(np.partition(self.offsets, samples - 1)[samples - 1]) if samples else 0.0
