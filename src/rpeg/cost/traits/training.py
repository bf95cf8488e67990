"""`TrainingTraits`: what a stack adds to the kernels of a training step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingTraits:
    """Training.

    host_seconds_per_layer: least time between the starts of two layers' forward kernels, spent by the host.
    """

    host_seconds_per_layer: float = 0.0
