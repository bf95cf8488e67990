"""The walk at a fixed temperature that ReaL searches with, over placements of the graph as it is.

Source: openpsi-project/ReaLHF, csrc/search/search.cpp (mcmc_search), csrc/search/simulate.cpp and
realhf/search_engine/search.py. A step picks one of all (stage, execution) pairs with equal chance. Plans that need more
memory than there is count as three times as long. Weights that go to another layout, and what is offloaded, take time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from rpeg.search.anneal import Found, Search
from rpeg.search.baselines.executions import executions, gridded, moved, resting, stages
from rpeg.search.structure import Structure

TEMPERATURE_SECONDS = 20.0
"""A step longer by so much is accepted with probability 1/e: beta 0.001 for each 0.1 s of 5 iterations."""

MEMORY_FACTOR = 3.0


def metropolis(
    search: Search,
    structure: Structure,
    steps: int,
    seed: int,
    *,
    temperature_seconds: float = TEMPERATURE_SECONDS,
    stop: Callable[[], bool] = lambda: False,
) -> Found:
    """The best plan that fits of so many steps, or that came before `stop` said so; else the last that did not fit.

    It begins with every stage where and how it is fastest alone.
    """
    random = np.random.default_rng(seed)
    here = best = search.evaluate(structure, gridded(search, structure), "Metropolis walk")
    movable = stages(structure)
    ways = {stage: executions(here.state, (resting(structure, stage),)) for stage in movable}
    for _ in range(steps):
        if stop():
            break
        stage = movable[int(random.integers(len(movable)))]
        trial = moved(search, here, stage, ways[stage][int(random.integers(len(ways[stage])))])
        worse = _seconds(trial) - _seconds(here)
        if worse <= 0 or random.random() < math.exp(-worse / temperature_seconds):
            here = trial
            best = min(best, here, key=lambda found: (not found.fits, found.seconds))
    return best


def _seconds(found: Found) -> float:
    return found.seconds if found.fits else MEMORY_FACTOR * found.seconds
