"""Branches of a search: in a process of their own or one after another, what they find is the same."""

from __future__ import annotations

import multiprocessing

import pytest

from rpeg.algorithms import grpo
from rpeg.search import beside, branches
from rpeg.search.budget import Budget
from rpeg.search.hardware_plan import found_starts
from rpeg.search.problem import Permissions
from rpeg.search.synthetic import Drawn, search_in

BUDGET = Budget(chains=4, rounds=2, burst=200, probe=50, asking=100)


def ends() -> list[tuple[object, ...]]:
    graph = grpo.graph(grpo.Hyper(kl_coefficient=0.0))
    search = search_in(graph, Drawn(3, (4,)), Permissions(staleness=1), draws=2, islands=6)
    starts = found_starts(search, 0, steps=15)
    found = branches.walked(search, [(starts[i], i) for i in range(4)], BUDGET)
    return [
        (one.seconds, one.short, one.structure.applied, [field.tolist() for field in one.state])
        for one in found
    ]


def test_in_one_process_they_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    forked = ends()
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert ends() == forked
    assert len(forked) > 8


def test_a_child_that_dies_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    forked = ends()
    monkeypatch.setattr(beside, "_tell", lambda *given: None)
    assert ends() == forked


def test_what_goes_wrong_beside_is_met_here() -> None:
    def work() -> None:
        raise ValueError("of this work")

    with pytest.raises(ValueError, match="of this work"):
        beside.Beside(work).result()
