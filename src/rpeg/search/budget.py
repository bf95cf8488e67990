"""How long a search goes on, and what it tells meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

MANY = 256
"""Devices of a cluster beyond which a search asks less."""


@dataclass(frozen=True)
class Budget:
    """chains: walks from different starts. rounds: structures that each goes through. burst: annealing steps in each.

    probe: annealing steps with which the structures next to it are looked at.
    asking: what each burst may cost the cost model, about in milliseconds (later ones know what earlier ones asked);
    0: what keeps a plan for so many devices quick.
    """

    chains: int = 4
    rounds: int = 4
    burst: int = 12000
    probe: int = 600
    asking: int = 0

    def at(self, devices: int) -> Budget:
        """With its `asking`: rows of larger clusters have more ranks and cost more."""
        return self if self.asking else replace(self, asking=600 if devices <= MANY else 200)


@dataclass
class Progress:
    """evaluations: so far. best: seconds of the best that fits, inf where none does yet. where: in words."""

    evaluations: int = 0
    best: float = math.inf
    where: str = ""
