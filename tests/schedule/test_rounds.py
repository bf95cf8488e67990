"""Reserved rounds: one begins when the selector has judged the one before, and is passed over where nothing lacks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from plans import make_plan
from rpeg.algorithms import dapo
from rpeg.errors import RunError
from rpeg.schedule import Command, Finished, Kept, Launch, Produced, Rejected, Scheduler
from rpeg.workload import Selection, Workload, constant

WANTED = Workload(2, 2, constant(4), constant(8), selection=Selection(2, 3))
"""Two groups of two of three rounds of two prompts."""


def _scheduler() -> Scheduler:
    graph = dapo.graph(dapo.Hyper())
    plan = make_plan(graph, dict.fromkeys((s.name for s in graph.stages), (0,)), workload=WANTED)
    return Scheduler(plan, 1)


def _launches(commands: Iterable[Command]) -> list[Launch]:
    return [command for command in commands if isinstance(command, Launch)]


def _until_select(scheduler: Scheduler, commands: Iterable[Command]) -> Launch:
    """Ends everything before the next selector's item, which has just been launched."""
    (launch,) = _launches(commands)
    while launch.item.name != "select":
        for part in scheduler.lowered.tasks[launch.item.slot].makes:
            scheduler.on(Produced(launch.item, part, launch.ids, (8,) * len(launch.ids)))
        (launch,) = _launches(scheduler.on(Finished(launch.item)))
    return launch


def _judge(scheduler: Scheduler, launch: Launch, accepted: tuple[int, ...]) -> tuple[Command, ...]:
    (part,) = scheduler.lowered.tasks[launch.item.slot].makes
    rejected = tuple(i for i in launch.ids if i not in accepted)
    assert scheduler.on(Rejected(launch.item, rejected, "equal")) == ()
    assert scheduler.on(Produced(launch.item, part, accepted, (8,) * len(accepted))) == ()
    return scheduler.on(Finished(launch.item))


def test_a_filled_quota_passes_the_other_rounds_over() -> None:
    scheduler = _scheduler()
    first = _until_select(scheduler, scheduler.start())
    assert (first.ids, first.wanted) == ((0, 1, 2, 3), 4)
    after = _launches(_judge(scheduler, first, (0, 1, 2, 3)))
    assert [launch.item.name for launch in after] == ["advantage", "old_logprob"]
    assert all(launch.ids == (0, 1, 2, 3) for launch in after)


def test_a_round_asks_for_what_lacks_until_all_are_used() -> None:
    scheduler = _scheduler()
    launch = _until_select(scheduler, scheduler.start())
    following = _judge(scheduler, launch, (2, 3))
    second = _until_select(scheduler, following)
    assert (second.item.part, second.ids, second.wanted) == (1, (4, 5, 6, 7), 2)
    third = _until_select(scheduler, _judge(scheduler, second, ()))
    assert (third.item.part, third.ids, third.wanted) == (2, (8, 9, 10, 11), 2)
    after = _launches(_judge(scheduler, third, ()))
    assert {launch.item.name: launch.ids for launch in after} == {
        "old_logprob": (2, 3),
        "advantage": (2, 3),
    }  # with what there is


def test_a_selector_keeps_to_what_lacks() -> None:
    scheduler = _scheduler()
    launch = _until_select(scheduler, scheduler.start())
    (part,) = scheduler.lowered.tasks[launch.item.slot].makes
    with pytest.raises(RunError, match="6 samples in part"):
        scheduler.on(Produced(launch.item, part, tuple(range(6)), (8,) * 6))


@pytest.mark.parametrize("event", [Rejected, Kept])
def test_only_a_selector_rejects(event: type[Rejected] | type[Kept]) -> None:
    scheduler = _scheduler()
    (launch,) = _launches(scheduler.start())
    told = Rejected(launch.item, (0,), "no") if event is Rejected else Kept(launch.item, (0,))
    with pytest.raises(RunError, match="rejects samples, which is not its part"):
        scheduler.on(told)
