"""How long a search goes on, and what it tells meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """chains: walks from different starts. rounds: structures that each tries. burst: annealing steps in each."""

    chains: int = 4
    rounds: int = 8
    burst: int = 4000


@dataclass
class Progress:
    """evaluations: so far. best: seconds of the best that fits, inf where none does yet. where: in words."""

    evaluations: int = 0
    best: float = math.inf
    where: str = ""
