"""Searches to compare with: they find plans, never worse than where they begin, the same for a seed."""

from __future__ import annotations

import pytest

from rpeg.algorithms import grpo, ppo
from rpeg.search.baselines.executions import executions, gridded, moved, stages
from rpeg.search.baselines.metropolis import metropolis
from rpeg.search.baselines.one_by_one import OFFLOADS, best_of_random, greedy
from rpeg.search.problem import Permissions
from rpeg.search.synthetic import Drawn, search_in

SEARCHES = {
    "greedy": lambda search, structure, seed: greedy(search, structure, rounds=2),
    "random": lambda search, structure, seed: best_of_random(search, structure, 60, seed),
    "Metropolis walk": lambda search, structure, seed: metropolis(search, structure, 300, seed),
}


def searched(name: str, units: tuple[int, ...], seed: int):
    search = search_in(ppo.graph(ppo.Hyper()), Drawn(5, units, crowding=4.0), Permissions(), draws=2)
    structure = search.structure(())
    assert structure is not None
    begin = search.evaluate(structure, gridded(search, structure))
    return begin, SEARCHES[name](search, structure, seed)


@pytest.mark.parametrize("units", [(4,), (3, 2)])
@pytest.mark.parametrize("name", SEARCHES)
def test_ends_no_worse_than_it_begins_and_repeats_itself(name, units) -> None:
    begin, found = searched(name, units, seed=3)
    assert found.seconds < 1e300
    assert found.objective <= begin.objective
    again = searched(name, units, seed=3)[1]
    assert again.seconds == found.seconds
    assert again.state.mask.tolist() == found.state.mask.tolist()


def test_a_cold_walk_only_goes_downhill() -> None:
    """At temperature 0 no worse plan is accepted, so that the last plan is the best."""
    search = search_in(ppo.graph(ppo.Hyper()), Drawn(5, (4,), crowding=4.0), Permissions(), draws=2)
    structure = search.structure(())
    assert structure is not None
    few, many = (metropolis(search, structure, n, 1, temperature_seconds=1e-12) for n in (50, 400))
    assert many.seconds <= few.seconds


def test_greedy_cannot_be_improved_by_moving_one_stage() -> None:
    search = search_in(grpo.graph(grpo.Hyper(kl_coefficient=0.0)), Drawn(2, (3,)), Permissions(), draws=1)
    structure = search.structure(())
    assert structure is not None
    found = greedy(search, structure, rounds=20)
    for stage in stages(structure):
        for way in executions(found.state, OFFLOADS):
            assert moved(search, found, stage, way).objective >= found.objective - 1e-12
