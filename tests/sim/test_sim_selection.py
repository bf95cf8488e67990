"""Dynamic sampling in simulation: chance decides by group, and rounds stop when the quota is filled."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import keeping, make_plan, selecting
from rpeg.algorithms import dapo
from rpeg.sim import Draws, simulate, steady_steps_of
from rpeg.sim.selection import judge
from rpeg.trace import What, step_ends
from rpeg.verify import prove
from rpeg.workload import Selection, Workload, constant, lognormal
from samples_of_plans import TableCosts


def workload(rejected: float, rounds: int = 4, round_prompts: int = 4) -> Workload:
    return Workload(
        4, 2, constant(4), lognormal(6, 12), 2, selection=Selection(round_prompts, rounds, rejected)
    )


@given(rejected=st.floats(0, 0.95), wanted=st.integers(0, 6), left=st.integers(0, 3), seed=st.integers(0, 99))
def test_every_group_is_judged_whole_and_the_first_are_taken(
    rejected: float, wanted: int, left: int, seed: int
) -> None:
    w = workload(rejected, 2)
    ids = range(w.asked, w.asked + 8)
    found = judge(ids, 2 * wanted, w, seed, range(2 * left))
    assert sorted((*found.accepted, *found.rejected, *found.over)) == [*range(2 * left), *ids]
    assert [*found.accepted, *found.over] == sorted((*found.accepted, *found.over))
    assert len(found.accepted) == min(2 * wanted, len(found.accepted) + len(found.over))
    for some in (found.accepted, found.rejected, found.over):
        assert {i // 2 * 2 for i in some} | {i // 2 * 2 + 1 for i in some} == set(some)


@given(rejected=st.floats(0, 0.95), rounds=st.integers(1, 5), round_prompts=st.integers(2, 6))
@settings(max_examples=20, deadline=None)
def test_simulated_runs_are_proven(rejected: float, rounds: int, round_prompts: int) -> None:
    trace = simulate(selecting(workload(rejected, rounds, round_prompts)), TableCosts({}), 4)
    assert prove(trace).findings == ()


def test_leftovers_save_rounds() -> None:
    trace = simulate(keeping(), TableCosts({}), 8)
    assert prove(trace).findings == ()
    kept = {i for e in trace.entries if e.what is What.KEPT for i in e.ids}
    accepted = {
        i for e in trace.entries if e.what is What.PRODUCED and e.item.name == "select" for i in e.ids
    }
    last = {i for i in kept if i // keeping().workload.asked == 7}
    assert kept - last
    assert kept - last <= accepted


@pytest.mark.parametrize("rejected", [0.0, 0.3, 0.9])
def test_the_steady_step_counts_the_rounds_that_are_needed(rejected: float) -> None:
    """Colocated synchronous steps do not overlap, so that each takes what its own draw says."""
    w, graph, costs = workload(rejected), dapo.graph(dapo.Hyper()), TableCosts({})
    plan = make_plan(graph, dict.fromkeys((s.name for s in graph.stages), (0, 1)), workload=w)
    trace = simulate(plan, costs, 6)
    ends = list(step_ends(trace).values())
    measured = [b - a for a, b in pairwise(ends)]
    found = steady_steps_of(plan, costs, Draws(w, 0), range(1, 6)).step_seconds
    assert measured == pytest.approx(found)
    rounds = {step: max(e.item.part for e in trace.entries if e.item.step == step) + 1 for step in range(6)}
    assert (max(rounds.values()) == 1) == (rejected == 0)
    assert (set(rounds.values()) == {4}) == (rejected == 0.9)
