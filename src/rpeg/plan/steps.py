"""Which step an arc's source belongs to, and the items of a lane step after step."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.plan.item import Item
from rpeg.plan.lowered import Lowered, Task
from rpeg.plan.plan import Lane


def source_step(task: Task, step: int, steps: int) -> int | None:
    """The step of a source's last firing at or before `step`; None where there was none.

    A stage that fires every n steps carries its state over in between.
    """
    if step >= steps and not task.fires(step, steps):
        step = steps - 1
    if step < steps:
        step -= step % task.every
    return step if step >= task.first_step else None


def lane_items(lane: Lane, lowered: Lowered, first_step: int, steps: int) -> Iterator[Item]:
    """The items of a lane in its order, period after period, of a run of steps first_step … steps - 1."""
    last_shift = max((turn.shift for turn in lane.turns), default=0)
    for period in range(first_step, steps + 1 + last_shift):
        for turn in lane.turns:
            step = period - turn.shift
            if step >= first_step and lowered.tasks[turn.slot].fires(step, steps):
                yield turn.slot.at(step)
