"""Searches that need no idea: each stage in turn its best, and the best of many random plans."""

from __future__ import annotations

import numpy as np

from rpeg.search.anneal import Found, Search
from rpeg.search.baselines.executions import executions, gridded, moved, stages
from rpeg.search.structure import Structure

OFFLOADS = (0, 1, 2)


def greedy(search: Search, structure: Structure, rounds: int = 8) -> Found:
    """Each stage in turn gets what is best given the others, until nothing changes or the rounds are over."""
    here = search.evaluate(structure, gridded(search, structure), "greedy")
    ways = executions(here.state, OFFLOADS)
    for _ in range(rounds):
        before = here.objective
        for stage in stages(structure):
            tried = (moved(search, here, stage, way) for way in ways)
            here = min((here, *tried), key=lambda found: found.objective)
        if here.objective >= before:
            break
    return here


def best_of_random(search: Search, structure: Structure, plans: int, seed: int) -> Found:
    """The best of so many plans whose stages each have a random execution. Plans that cannot be are drawn again."""
    random = np.random.default_rng(seed)
    best = here = search.evaluate(structure, gridded(search, structure), "random")
    ways = executions(here.state, OFFLOADS)
    drawn = 0
    for _ in range(100 * plans):
        state = gridded(search, structure)
        for stage in stages(structure):
            way = ways[int(random.integers(len(ways)))]
            state.mask[stage], state.option[stage], state.offload[stage] = way.mesh, way.option, way.offload
        found = search.evaluate(structure, state, "random")
        drawn += found.seconds < 1e300
        best = min(best, found, key=lambda one: one.objective)
        if drawn == plans:
            break
    return best
