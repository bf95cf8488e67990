"""Steady steps over draws of lengths, what bounds them, and what of the work is useful."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plans as named_plans
from random_plans import plans
from rpeg.architecture import Architecture
from rpeg.ir import Kind, Stage
from rpeg.plan import Plan, lower
from rpeg.sim import (
    Batch,
    Bound,
    Bounds,
    Draws,
    Facts,
    busy_seconds,
    dependencies,
    estimate,
    lane_seconds,
    least_work,
    peak_flops,
    simulate,
    steady_steps,
    steady_steps_of,
    step_seconds,
    step_time,
    useful_flops,
)
from rpeg.workload import constant
from samples_of_plans import TableCosts, assign, cluster, grpo, plan_of, ppo, workload

COSTS = TableCosts({"train_actor": 7.0, "train_critic": 4.0}, dispatch_seconds=0.01)
TINY = Architecture("tiny", "llama", 2, 64, 4, 4, 16, 128, 259, 128)
FACTS = Facts(dict.fromkeys(("actor", "critic", "reference"), TINY))


@pytest.mark.parametrize("name", ["colocated on one", "minibatches"])
def test_where_steps_do_not_overlap_each_draw_gives_the_step_that_has_its_lengths(name: str) -> None:
    plan = plan_of(ppo(), assign(ppo(), (0,)), devices=1)
    if name == "minibatches":  # taken as their members are ready, which is another part in every step
        plan = replace(named_plans.minibatches(), workload=workload(minibatches=2))
    draws = Draws(plan.workload, 3)
    trace = simulate(plan, COSTS, 9, 3, draws=draws)
    found = steady_steps_of(plan, COSTS, draws, steady_steps(trace))
    assert found.step_seconds == pytest.approx(step_seconds(trace))
    assert len(set(found.step_seconds)) > 1
    told, seen = found.time, step_time(trace)
    assert (told.p50_seconds, told.p95_seconds) == pytest.approx((seen.p50_seconds, seen.p95_seconds))


@settings(max_examples=25, deadline=None)
@given(plans(), st.integers(0, 99))
def test_the_ratio_of_the_mean_times_bounds_the_mean_of_the_ratios(plan: Plan, seed: int) -> None:
    found = steady_steps_of(plan, COSTS, Draws(plan.workload, seed), range(6))
    assert found.critical.step_seconds <= found.time.mean_seconds * (1 + 1e-9)
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    assert dependencies(lowered, found.mean).seconds <= found.critical.step_seconds * (1 + 1e-9)
    busy = lane_seconds(lowered, plan.order, found.mean)
    assert max(busy.values()) <= found.critical.step_seconds * (1 + 1e-9)


@settings(max_examples=12, deadline=None)
@given(plans(), st.integers(0, 99))
def test_no_long_run_is_faster_than_its_dependencies_allow(plan: Plan, seed: int) -> None:
    draws = Draws(plan.workload, seed, keep=99)
    time = step_time(simulate(plan, COSTS, 60, seed, draws=draws))
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    bound = dependencies(lowered, steady_steps_of(plan, COSTS, draws, range(60)).mean)
    # of 60 steps the first and the last of those that overlap count in one of the two and not in the other
    assert bound.seconds <= time.mean_seconds * (1 + 3 / 50)


def test_busy_seconds_by_the_order_are_those_of_a_trace() -> None:
    plan = plan_of(
        ppo(2), assign(ppo(2), (0,), generate=(1,)), replace(workload(), response_lengths=constant(5))
    )
    free = replace(COSTS, dispatch_seconds=0.0)
    trace = simulate(plan, free, 9)
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    mean = steady_steps_of(plan, free, Draws(plan.workload, 0), range(1)).mean
    assert lane_seconds(lowered, plan.order, mean) == pytest.approx(dict(busy_seconds(trace)))


def test_without_lanes_only_what_waits_for_each_other_counts() -> None:
    """One device does everything; with any number of them the assessments would run side by side."""
    times = {"reference": 2.0, "old_logprobs": 3.0, "values": 4.0, "train_actor": 20.0, "train_critic": 10.0}
    costs = TableCosts({**times, "reward": 0.0, "advantages": 0.0})
    plan = plan_of(ppo(), assign(ppo(), (0,)), replace(workload(), response_lengths=constant(10)), devices=1)
    steady = steady_steps_of(plan, costs, Draws(plan.workload, 0), range(2))
    bound = dependencies(lower(plan.graph, plan.assignments, plan.workload), steady.mean)
    assert (steady.time.mean_seconds, bound.seconds) == (49.0, 10 + 4 + 20)
    assert set(bound.what.split(" → ")) == {"generate", "values", "advantages", "train_actor"}


def test_work_is_spread_over_all_devices() -> None:
    def best(stage: Stage) -> float:
        return {"generate": 6.0, "train_actor": 9.0}.get(stage.name, 1.0)

    bound = least_work(grpo(), cluster(4), best)
    assert (bound.by, bound.seconds) == ("work", (6 + 9 + 1 + 1) / 4)


def test_the_tightest_bound_is_the_largest() -> None:
    lane, arcs, work = (
        Bound("lane", "device0", 3.0),
        Bound("dependencies", "a → b", 2.0),
        Bound("work", "c", 4.0),
    )
    assert Bounds(lane, arcs, work).tightest is work
    assert Bounds(lane, arcs).tightest is Bounds(lane, arcs, work).of_any_order is lane
    assert Bounds(lane, arcs).all == (lane, arcs)


def test_an_estimate_tells_occupancy_and_mfu_apart() -> None:
    plan = plan_of(ppo(), assign(ppo(), (0,)), workload(longest=16))
    found = estimate(plan, FACTS, steps=3, device_seconds=lambda stage: 1e-3)
    assert found.occupancy["device0"] > 0.5
    assert 0 < found.mfu < 0.5
    assert found.bounds.work is not None
    assert found.gap <= found.gap_to(found.bounds.work)
    assert {link.src.name for link in found.critical.cycle} >= {"generate", "train_actor"}


def test_useful_work_of_training_is_six_flop_a_parameter_and_token() -> None:
    """Without attention and embedding; the head counts at response tokens; a prompt is read once for its group."""
    graph = grpo()
    plan = plan_of(graph, assign(graph, (0,)), workload(prompts=1, samples_per_prompt=2))
    batch = Batch((0, 1), (3, 3), (2, 4))
    body = TINY.parameters() - TINY.embedding_parameters - TINY.head_parameters()
    head = 64 * 259

    def attention(tokens: int) -> int:
        return 2 * 4 * 64 * tokens * (tokens + 1) // 2

    forward = 2 * ((5 + 7) * body + 6 * head) + attention(5) + attention(7)
    generated = forward - (2 * 3 * body + attention(3))
    inferring = sum(stage.kind is Kind.INFERENCE for stage in graph.stages)
    assert useful_flops(plan, FACTS, batch) == pytest.approx(generated + (inferring + 3) * forward)


def test_experts_that_a_token_is_not_sent_to_are_not_work() -> None:
    from rpeg.architecture import named

    sparse = named("mixtral-8x7b")
    graph = grpo()
    plan = plan_of(graph, assign(graph, (0,)), workload(prompts=1, samples_per_prompt=2))
    facts = replace(FACTS, architectures=dict.fromkeys(("actor", "reference"), sparse))
    tokens = 2 * (100 + 1)
    flops = useful_flops(plan, facts, Batch((0, 1), (100, 100), (1, 1)))
    # a generation that reads the prompt once, two assessments and one training
    assert flops < 2 * sparse.active_parameters * tokens * (0.5 + 2 + 3) * 1.1


def test_the_peak_is_that_of_all_devices() -> None:
    plan = plan_of(grpo(), assign(grpo(), (0,)), devices=2)
    assert peak_flops(plan, "float32") == 2 * plan.cluster.device(0).kind.peak("float32")
