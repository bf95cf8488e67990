"""How old samples are: what happens under a bound, and what overlap can and cannot bring."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from random_plans import FixedCosts, timed_plans
from rpeg.ir import Kind
from rpeg.plan import Plan, check
from rpeg.sim import ordered, simulate, staleness, steady_steps, step_time
from rpeg.transforms import parse
from rpeg.workload import constant
from samples_of_plans import TableCosts, assign, cluster, plan_of, ppo, workload

REST = {
    "reward": 0.0,
    "advantages": 0.0,
    "reference": 2.0,
    "old_logprobs": 2.0,
    "values": 2.0,
    "train_actor": 10.0,
    "train_critic": 0.0,
    "train_actor->generate:weights:actor": 0.0,
}
COSTS = TableCosts(REST)


def _plan(bound: int, shift: int, tokens: int = 10, freshness: str = "latest") -> Plan:
    """Generation on a device of its own, a token a second; all else on the other."""
    graph, applied = ppo(), ()
    if bound:
        transform = parse(f"async{{stage=generate,staleness={bound},freshness={freshness}}}")
        graph, applied = transform.apply(graph), (str(transform),)
    work = replace(workload(), response_lengths=constant(tokens))
    bare = Plan(graph, cluster(2), work, assign(graph, (1,), generate=(0,)), (), applied)
    return check(ordered(bare, {s.name: shift for s in graph.stages if s.name != "generate"}, COSTS))


def _ages(plan: Plan, steps: int = 12) -> tuple[float, ...]:
    trace = simulate(plan, COSTS, steps)
    return staleness(trace, steady_steps(trace)).shares


def test_synchronous_samples_are_of_the_current_weights() -> None:
    assert _ages(_plan(0, 0)) == (1.0,)


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_exact_freshness_is_always_at_its_bound(bound: int) -> None:
    assert _ages(_plan(bound, bound, freshness="exact")) == (0.0,) * bound + (1.0,)


def test_a_bound_is_not_what_samples_are_behind() -> None:
    # Generation is the longer part of a step: it always finds the weights of the update that ran beside it.
    slow = simulate(_plan(3, 1, tokens=40), COSTS, 12)
    found = staleness(slow, steady_steps(slow))
    assert found.bound == 3
    assert found.mean == pytest.approx(1.0)
    # It is the shorter part, and runs ahead until the bound stops it.
    fast = simulate(_plan(3, 3, tokens=1), COSTS, 12)
    assert staleness(fast, steady_steps(fast)).mean == pytest.approx(3.0)


@settings(max_examples=40, deadline=None)
@given(timed_plans())
def test_no_sample_is_older_than_its_bound(case: tuple[Plan, FixedCosts]) -> None:
    plan, costs = case
    trace = simulate(plan, costs, 8)
    found = staleness(trace, range(8))
    generators = {s.name for s in plan.graph.stages if s.kind is Kind.GENERATE} - plan.graph.observers()
    allowed = max(e.delay - 1 for name in generators for e in plan.graph.weights_into(name))
    assert found.bound == allowed
    assert len(found.shares) - 1 <= allowed
    assert sum(found.shares) == pytest.approx(1)


@pytest.mark.parametrize("tokens", [20, 40, 1000])
def test_overlap_alone_saves_what_is_not_generation(tokens: int) -> None:
    """Where generation is the longer, overlap hides the rest behind it, and next to nothing where it is much longer."""
    rest = sum(REST.values())
    together, apart = (
        step_time(simulate(plan, COSTS, 8)).mean_seconds
        for plan in (_plan(0, 0, tokens), _plan(1, 1, tokens))
    )
    assert together == pytest.approx(tokens + rest)
    assert 1 - apart / together == pytest.approx(rest / (tokens + rest))


def test_of_a_plan_whose_samples_are_all_trained_none_is_lost() -> None:
    plan = plan_of(ppo(), assign(ppo(), (0,)), workload())
    trace = simulate(plan, COSTS, 3)
    assert staleness(trace, range(3)).lost == 0
