"""Timed event graphs: the maximum cycle ratio is the step that the simulator settles into, and its laws."""

from __future__ import annotations

import random
from dataclasses import replace
from math import lcm

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_plans import FixedCosts, timed_plans
from rpeg.errors import PlanError
from rpeg.plan import Arc, ItemKind, Lane, Lowered, Plan, Slot, Task, Turn
from rpeg.sim import EventGraph, cycle_ratio, events, simulate
from rpeg.trace import What

seeds = st.integers(0, 2**16)


def _graph(plan: Plan, costs: FixedCosts) -> EventGraph:
    return events(costs.lowered, plan.shifts, plan.order).timed(costs.times)


@settings(max_examples=40, deadline=None)
@given(timed_plans())
def test_the_simulator_settles_into_the_cycle_ratio(timed: tuple[Plan, FixedCosts]) -> None:
    """Over whole periods of the critical cycle, at the items that are on it; before that it is never faster."""
    plan, costs = timed
    graph = _graph(plan, costs)
    found = cycle_ratio(graph)
    slots = {link.src for link in found.cycle}
    span = lcm(found.steps, *range(1, 5), graph.steps)
    for periods in (3, 12, 48):
        slope = _slope(plan, costs, slots, span, periods * span)
        if slope == pytest.approx(found.step_seconds, rel=1e-9, abs=1e-12):
            return
        assert slope >= found.step_seconds * (1 - 1e-9)
    assert slope == pytest.approx(found.step_seconds, rel=1e-9, abs=1e-12)


def _slope(plan: Plan, costs: FixedCosts, slots: set[Slot], span: int, steps: int) -> float:
    """Seconds a step over the last `span` steps, of the slowest of these slots."""
    ends = {
        (entry.item.slot, entry.item.step): entry.seconds
        for entry in simulate(plan, costs, steps).entries
        if entry.what is What.FINISHED
    }
    last = {slot: max(s for other, s in ends if other == slot and s < steps) for slot in slots}
    return max((ends[slot, step] - ends[slot, step - span]) / span for slot, step in last.items())


@settings(max_examples=60, deadline=None)
@given(timed_plans(), seeds)
def test_no_second_more_makes_a_step_shorter(timed: tuple[Plan, FixedCosts], seed: int) -> None:
    plan, costs = timed
    structure = events(costs.lowered, plan.shifts, plan.order)
    before = cycle_ratio(structure.timed(costs.times)).step_seconds
    draw = random.Random(seed)
    slower = [{key: s + draw.choice((0, 0, 1.5)) for key, s in times.items()} for times in costs.times]
    after = cycle_ratio(structure.timed((slower[0], slower[1]))).step_seconds
    assert after >= before * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(timed_plans())
def test_a_step_is_never_shorter_than_a_lane_is_busy(timed: tuple[Plan, FixedCosts]) -> None:
    plan, costs = timed
    step, (durations, _) = cycle_ratio(_graph(plan, costs)).step_seconds, costs.times
    for lane in plan.order:
        busy = sum(durations[turn.slot] / costs.lowered.tasks[turn.slot].every for turn in lane.turns)
        assert step >= busy * (1 - 1e-12)


@settings(max_examples=40, deadline=None)
@given(timed_plans(), seeds)
def test_numbers_of_nodes_and_arcs_mean_nothing(timed: tuple[Plan, FixedCosts], seed: int) -> None:
    graph = _graph(*timed)
    draw = np.random.default_rng(seed)
    nodes, arcs = draw.permutation(len(graph.nodes)), draw.permutation(len(graph.src))
    place = np.argsort(nodes)  # of each old node in the new list
    renumbered = replace(
        graph,
        nodes=tuple(graph.nodes[i] for i in nodes),
        src=place[graph.src][arcs],
        dst=place[graph.dst][arcs],
        weight=graph.weight[arcs],
        height=graph.height[arcs],
        why=tuple(graph.why[i] for i in arcs),
    )
    assert cycle_ratio(renumbered).step_seconds == pytest.approx(cycle_ratio(graph).step_seconds, rel=1e-12)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5), st.integers(1, 14), seeds, st.booleans())
def test_howard_finds_the_best_of_all_cycles(nodes: int, arcs: int, seed: int, whole: bool) -> None:
    draw = np.random.default_rng(seed)
    src, dst = draw.integers(0, nodes, (2, arcs))
    weight = draw.integers(0, 4, arcs).astype(float) if whole else draw.uniform(0, 1, arcs)
    height = np.where(
        src < dst, draw.integers(0, 3, arcs), draw.integers(1, 3, arcs)
    )  # no cycle without height
    names = tuple((Slot(ItemKind.RUN, f"n{i}"), 0) for i in range(nodes))
    graph = EventGraph(names, src, dst, weight, height, ("x",) * arcs, 1)
    found = cycle_ratio(graph)
    assert found.step_seconds == pytest.approx(_best_of_all(graph), abs=1e-9)
    if found.cycle:
        assert sum(link.seconds for link in found.cycle) / found.steps == pytest.approx(found.step_seconds)
        assert [link.dst for link in found.cycle] == [x.src for x in (*found.cycle[1:], found.cycle[0])]


def _best_of_all(graph: EventGraph) -> float:
    """By going along every simple path."""
    best = 0.0
    paths = [(int(a), int(b), float(w), int(h), {int(b)}) for a, b, w, h in _arcs(graph)]
    while paths:
        first, last, weight, height, seen = paths.pop()
        if first == last:
            best = max(best, weight / height)
            continue
        paths += [
            (first, int(b), weight + w, height + int(h), seen | {int(b)})
            for a, b, w, h in _arcs(graph)
            if a == last and int(b) not in seen
        ]
    return best


def _arcs(graph: EventGraph) -> zip[tuple[int, int, float, int]]:
    return zip(graph.src, graph.dst, graph.weight, graph.height, strict=True)


A, B, C = (Slot(ItemKind.RUN, name) for name in "abc")


def _lowered(*arcs: Arc, every: int = 1) -> Lowered:
    tasks = {A: Task(A, ("one",)), B: Task(B, ("two",)), C: Task(C, ("one",), every)}
    return Lowered(tasks, arcs, (), ())


ORDER = (Lane("one", (Turn(A), Turn(C))), Lane("two", (Turn(B),)))
SECONDS = ({A: 1.0, B: 5.0, C: 3.0}, {(A, 0): 0.25})


def test_a_part_is_waited_for_and_not_the_whole() -> None:
    """a leaves its part after 0.25 s, b takes 5 s, and c of the next period waits for it."""
    lowered = _lowered(Arc(A, B, 0, "rollouts", part=0), Arc(B, A, 1, "weights:m"))
    found = cycle_ratio(events(lowered, {}, ORDER).timed(SECONDS))
    assert found.step_seconds == 5.25
    assert [(str(link.src)[0], link.seconds, link.periods, link.why) for link in found.cycle] == [
        ("a", 0.25, 0, "rollouts"),
        ("b", 5.0, 1, "weights:m"),
    ]


def test_what_fires_rarely_counts_as_rarely() -> None:
    """Lane one: a twice and c once in two steps."""
    lowered = _lowered(every=2)
    short = {**SECONDS[0], B: 0.0}
    assert cycle_ratio(events(lowered, {}, ORDER).timed((short, {}))).step_seconds == (1 + 1 + 3) / 2


def test_a_delay_of_two_lets_two_periods_overlap() -> None:
    lowered = _lowered(Arc(A, B, 0, "rollouts"), Arc(B, A, 2, "weights:m"))
    alone = cycle_ratio(events(lowered, {}).timed(SECONDS))
    assert (alone.step_seconds, alone.steps) == (3.0, 2)


def test_without_a_cycle_nothing_limits() -> None:
    found = cycle_ratio(events(_lowered(Arc(A, B, 0, "x")), {}).timed(SECONDS))
    assert (found.step_seconds, found.cycle) == (0.0, ())


def test_items_that_wait_for_each_other_are_named() -> None:
    lowered = _lowered(Arc(B, A, 0, "x"), Arc(C, B, 0, "y"))
    with pytest.raises(PlanError, match=r"wait for each other in one period.*: a\[.*→ c\[.*→ b\[.*→ a\["):
        events(lowered, {}, ORDER)


def test_a_source_of_a_later_period_is_refused() -> None:
    with pytest.raises(PlanError, match=r"b\[.*needs x of a\[.*; raise its shift"):
        events(_lowered(Arc(A, B, 0, "x")), {A: 1}, ())


def test_an_arc_that_a_draw_makes_void_is_left_out() -> None:
    late = Arc(A, B, 0, "rollouts", if_members=True)
    structure = events(_lowered(late, Arc(B, A, 1, "weights:m")), {}, ORDER)
    assert structure.uncertain == (late,)
    assert cycle_ratio(structure.timed(SECONDS)).step_seconds == 6.0
    assert cycle_ratio(structure.timed(SECONDS, {late})).step_seconds == 5.0
