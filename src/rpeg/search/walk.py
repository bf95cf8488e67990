"""A walk through structures: those next to where it is are probed, a good one is annealed, sometimes a worse one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from rpeg.errors import InputError
from rpeg.search.anneal import Found, Search
from rpeg.search.budget import Budget
from rpeg.search.structure import Structure
from rpeg.search.structures import neighbours

MOST_PROBES, FURTHER = 16, 4
"""Structures one transform away that a round probes, at most, and those two away."""

PROBING_HOT = 0.3
"""Temperature at the start of a probe."""

STAYING = 0.75
"""Share of the probes that fit layouts, rests and shifts to another structure on the same blocks; others move blocks."""

WORSE = 0.03
"""How much worse, as a share of the step, a structure may look in the first round and be gone to with good odds."""


def walk(search: Search, start: Found, budget: Budget, seed: int) -> Iterator[Found]:
    """What annealing found in each structure that the chain came to. Counted in steps: the same for the same seed."""
    random = Random(seed)
    here = _annealed(search, start, budget, random)
    yield here
    best = here
    for turn in range(1, budget.rounds):
        temperature = WORSE * (1 - turn / budget.rounds)
        probes = [here, *_probes(search, here, budget, random)]
        yield from probes[1:]
        chosen = min(probes, key=lambda one: one.objective - temperature * _gumbel(random))
        found = _annealed(search, chosen, budget, random)
        yield found
        here = found
        best = min(best, found, key=lambda one: one.objective)
        if here.objective > best.objective + 2 * temperature:
            here = best


def _annealed(search: Search, start: Found, budget: Budget, random: Random) -> Found:
    """The best of an annealing that begins hot and of one that begins where that ended, cold."""
    cold = budget.burst // 4
    found, _ = search.burst(start, budget.burst - cold, random.getrandbits(62), allowance=budget.asking)
    return search.burst(found, cold, random.getrandbits(62), hot=0.0, allowance=budget.asking // 4)[0]


def _probes(search: Search, here: Found, budget: Budget, random: Random) -> Iterator[Found]:
    for target in _around(search, here.structure, random):
        try:
            begun = search.taken_over(here, target)
            if begun.is_plan:
                yield search.burst(begun, budget.probe, random.getrandbits(62), hot=PROBING_HOT, placed=True)[
                    0
                ]
        except InputError:
            continue  # no cost is known for it


def _around(search: Search, structure: Structure, random: Random) -> Iterator[Structure]:
    near = neighbours(search.problem, structure)
    chains = random.sample(near, min(MOST_PROBES, len(near)))
    made = [one for chain in chains if (one := search.structure(chain)) is not None]
    yield from made
    for _ in range(FURTHER if made else 0):
        onward = neighbours(search.problem, random.choice(made))
        further = search.structure(random.choice(onward)) if onward else None
        if further is not None and further.graph != structure.graph:
            yield further


def _gumbel(random: Random) -> float:
    """The least of values less such noise is drawn with odds that fall exponentially with the value."""
    return -math.log(-math.log(min(max(random.random(), 1e-12), 1 - 1e-12)))
