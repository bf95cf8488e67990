"""`ServingTraits`: what an inference engine adds to its kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServingTraits:
    """Serving.

    host_seconds_per_step: least time between two decode steps, spent by the host.
    """

    host_seconds_per_step: float = 0.0
