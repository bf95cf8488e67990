"""Annealing on instances whose costs are drawn: it repeats itself, never ends above a start, and finds small optima."""

from __future__ import annotations

from math import log

import pytest

from rpeg.algorithms import grpo
from rpeg.errors import InputError
from rpeg.search.baselines.starts import starts
from rpeg.search.budget import Budget
from rpeg.search.exhaustive import exhaustive
from rpeg.search.hardware_plan import best_of, found_starts
from rpeg.search.problem import Permissions
from rpeg.search.structures import neighbours
from rpeg.search.synthetic import Drawn, search_in
from rpeg.transforms import Changes

SMALL = Budget(chains=1, rounds=2, burst=60)
STEPS = 15


def a_search(seed: int, units: tuple[int, ...] = (4,), staleness: int = 0):
    graph = grpo.graph(grpo.Hyper(kl_coefficient=0.0))
    return search_in(graph, Drawn(seed, units), Permissions(staleness=staleness), draws=2, islands=6)


def test_the_same_seed_finds_the_same_plan() -> None:
    ends = []
    for _ in range(2):
        search = a_search(1, staleness=1)
        best = best_of(search, SMALL, 7, found_starts(search, 7, STEPS))[0]
        ends.append((best.seconds, best.structure.applied, [field.tolist() for field in best.state]))
    assert ends[0] == ends[1]


def test_it_never_ends_above_a_start() -> None:
    search = a_search(2, staleness=1)
    begun = found_starts(search, 0, STEPS)
    best = best_of(search, SMALL, 0, begun)[0]
    assert len(begun) > 4
    assert all(best.objective <= one.objective for one in begun)


def test_it_comes_within_two_percent_of_the_best_of_a_small_space() -> None:
    search = a_search(5, (2,))
    base = search.structure(())
    assert base is not None
    truth = exhaustive(search, [base], choices=2)
    best = best_of(search, Budget(chains=2, rounds=4, burst=1000), 3, found_starts(search, 3, STEPS))
    found = min(one.objective for one in best if not one.structure.applied)
    assert truth.objective - 1e-9 <= found <= truth.objective + log(1.02)


def test_large_spaces_are_not_gone_through() -> None:
    search = a_search(5, (8,))
    base = search.structure(())
    assert base is not None
    with pytest.raises(InputError, match="too many"):
        exhaustive(search, [base], choices=2)


def test_staleness_needs_permission() -> None:
    search = a_search(1)
    base = search.structure(())
    assert base is not None
    assert all(t.changes is Changes.SCHEDULE for chain in neighbours(search.problem, base) for t in chain)
    assert not any(one.structure.applied and "async{" in str(one.structure.applied) for one in starts(search))
    free = a_search(1, staleness=1)
    assert any("async{" in str(t) for chain in neighbours(free.problem, base) for t in chain)
