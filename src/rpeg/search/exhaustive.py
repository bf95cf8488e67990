"""The best of all plans of a small space: what the search is measured against."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import numpy.typing as npt

from rpeg.errors import InfeasibleError, InputError
from rpeg.search.anneal import Found, Search
from rpeg.search.core.layout import HOST, TRAIN
from rpeg.search.structure import Structure

MOST_PLANS = 100_000


def plans_in(search: Search, structure: Structure, choices: int) -> int:
    """How many states a structure has, counted with every unit as an island."""
    masks = sum(2**units - 1 for units in search.space.units)
    kinds = [kind for kind in structure.shape.kind if kind != HOST]
    total = len(_shifts(structure))
    for kind in kinds:
        total *= masks * choices * (3 if kind == TRAIN else 2)
    return total


def exhaustive(search: Search, structures: Iterable[Structure], choices: int) -> Found:
    """choices: options that a stage has on any block. InputError for a larger space than can be gone through."""
    found = []
    for structure in structures:
        count = plans_in(search, structure, choices)
        if count > MOST_PLANS:
            raise InputError(f"{count} plans are too many to go through; at most {MOST_PLANS}")
        found.append(_best(search, structure, choices, count))
    best = min(found, key=lambda one: one.objective)
    if not best.fits:
        raise InfeasibleError("no plan of this space fits")
    return best


def _best(search: Search, structure: Structure, choices: int, count: int) -> Found:
    stages = len(structure.names)
    trial, best = search.space.state(stages), search.space.state(stages)
    island = 0
    masks = []
    for kind, units in enumerate(search.space.units):
        for state in (trial, best):
            state.size[island : island + units], state.kind[island : island + units] = 1, kind
        masks += [bits << island for bits in range(1, 2**units)]
        island += units
    search.exhaust(structure, trial, best, np.array(masks, np.int64), choices, _shifts(structure), count)
    return search.evaluate(structure, best, "exhaustive")


def _shifts(structure: Structure) -> npt.NDArray[np.int64]:
    """All that data and the age of weights allow, the least of them 0."""
    shape = structure.shape
    most = max((int(edge[2]) - 1 for edge in shape.edges), default=0)
    found = [
        shifts
        for shifts in product(range(most + 1), repeat=len(structure.names))
        if min(shifts) == 0 and all(shifts[a] <= shifts[b] for a, b in shape.data.tolist())
    ]
    return np.array(found, np.int64)
