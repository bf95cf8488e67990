"""Derived lane orders."""

from __future__ import annotations

import pytest

from rpeg.errors import PlanError
from rpeg.plan import Arc, ItemKind, Lowered, Slot, Task, check, lower
from rpeg.schedule import list_order
from rpeg.transforms import parse
from samples_of_plans import assign, ones, plan_of, ppo, slot_shifts, workload


def _names(plan_lane: object) -> list[str]:
    return [turn.slot.name for turn in plan_lane.turns]  # type: ignore[attr-defined]


def test_the_longest_tail_goes_first() -> None:
    graph = ppo()
    lowered = lower(graph, assign(graph, (0,)), workload())
    durations, offsets = ones(lowered)
    orders = []
    for slow in ("values", "reference"):
        long = {slot: 9.0 if slot.name == slow else seconds for slot, seconds in durations.items()}
        (lane, *_) = list_order(lowered, slot_shifts(lowered, {}), long, offsets)
        orders.append(_names(lane))
    # values also feed the critic's training directly, but both end in advantages: the longer one first
    assert [order.index("values") < order.index("reference") for order in orders] == [True, False]


def test_shifts_without_an_arc_between_leave_both_orders_legal() -> None:
    asynchronous = parse("async{staleness=1}")
    shifts = {s.name: 1 for s in ppo().stages if s.name != "generate"}
    plan = check(plan_of(ppo(), assign(ppo(), (0,)), applied=(asynchronous,), shifts=shifts))
    assert {t.slot.name: t.shift for lane in plan.order for t in lane.turns}["train_actor"] == 1


def test_the_same_question_has_the_same_answer() -> None:
    one, two = (plan_of(ppo(), assign(ppo(), (0, 1))) for _ in range(2))
    assert one.order == two.order


def test_items_that_wait_for_each_other_are_named() -> None:
    a, b = (Slot(ItemKind.RUN, name) for name in "ab")
    tasks = {slot: Task(slot, ("device0",)) for slot in (a, b)}
    lowered = Lowered(tasks, (Arc(a, b, 0, "x"), Arc(b, a, 0, "y")), (), ())
    with pytest.raises(PlanError, match=r"wait for each other, among them a\[part 0.*, b\["):
        list_order(lowered, {a: 0, b: 0}, {a: 1.0, b: 1.0}, {})
