from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import PLANS
from rpeg.plan import ItemKind, Lane, Slot, Task, Turn, lane_items, lower, source_step

SLOT = Slot(ItemKind.RUN, "evaluate")
EVERY_THIRD = Task(SLOT, ("device0",), every=3)
OBSERVER = Task(SLOT, ("device0",), every=3, observer=True)


@pytest.mark.parametrize(
    ("task", "step", "expected"),
    [
        (EVERY_THIRD, 0, 0),
        (EVERY_THIRD, 5, 3),
        (EVERY_THIRD, 7, 6),  # the run's last step
        (EVERY_THIRD, 8, 6),  # it does not fire after the last step
        (OBSERVER, 8, 8),
        (EVERY_THIRD, -1, None),
        (Task(SLOT, (), first_step=2), 1, None),
        (Task(SLOT, (), first_step=2), 2, 2),
    ],
)
def test_the_last_firing_at_or_before_a_step(task: Task, step: int, expected: int | None) -> None:
    assert source_step(task, step, steps=8) == expected


@settings(max_examples=20, deadline=None)
@given(name=st.sampled_from(sorted(PLANS)), first_step=st.integers(0, 3), count=st.integers(1, 4))
def test_lanes_run_each_item_of_a_run_once(name: str, first_step: int, count: int) -> None:
    plan = PLANS[name]()
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    steps = first_step + count
    due = {
        (lane, slot.at(step))
        for slot, task in lowered.tasks.items()
        for step in range(first_step, steps + 1)
        if task.fires(step, steps)
        for lane in task.lanes
    }
    run = [(lane.name, item) for lane in plan.order for item in lane_items(lane, lowered, first_step, steps)]
    assert len(run) == len(set(run))
    assert set(run) == due


def test_a_shift_delays_an_item_by_whole_periods() -> None:
    plan = PLANS["split"]()
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    generate, reference = (Slot(ItemKind.RUN, name) for name in ("generate", "reference"))
    lane = Lane("device0", (Turn(generate), Turn(reference, shift=1)))
    run = [generate.at(0), generate.at(1), reference.at(0), reference.at(1)]
    assert list(lane_items(lane, lowered, 0, 2)) == run
