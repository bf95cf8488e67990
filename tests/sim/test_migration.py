"""Migrated responses on the virtual clock: times by hand, and when they are worth it."""

from __future__ import annotations

from dataclasses import replace

from rpeg.plan import ItemKind, Plan, check
from rpeg.sim import Draws, ordered, simulate, step_time
from rpeg.transforms import parse
from rpeg.verify import prove
from rpeg.workload import Lengths
from samples_of_plans import TableCosts, assign, cluster, ppo, workload

STREAM = "stream{chunk=1,unit=sample}"
LONG_TAIL = replace(workload(prompts=8), response_lengths=Lengths((2, 60), (0.8, 0.2)))


def _plan(costs: TableCosts, *texts: str, **blocks: tuple[int, ...]) -> Plan:
    graph = ppo()
    for text in texts:
        graph = parse(text).apply(graph)
    bare = Plan(graph, cluster(2), LONG_TAIL, assign(graph, (0,), generate=(0, 1), **blocks), (), texts)
    return check(ordered(bare, {}, costs))


def test_the_last_of_each_replica_go_on_where_they_are_moved_to() -> None:
    costs = TableCosts({}, default_seconds=0.0)
    plan = _plan(costs, "migrate{stage=generate,responses=2}")
    trace = simulate(plan, costs, 3)
    assert prove(trace).holds
    for step in range(3):
        lengths = Draws(plan.workload, 0).whole(step).response_lengths
        halves = [sorted(lengths[:8]), sorted(lengths[8:])]
        ends = [half[-2] for half in halves]
        left = max(half[-1] - min(half[-2], half[-1] - 1) for half in halves)
        own = [s for s in trace.spans if s.item.kind is ItemKind.RUN and s.item.name == "generate"]
        spans = [span for span in own if span.item.step == step]
        seconds = {(span.item.part, span.item.replica): span.seconds for span in spans}
        assert seconds == {(0, 0): ends[0], (0, 1): ends[1], (1, 0): left}
        assert {len(span.ids) for span in spans if not span.item.part} == {7}


def test_who_scores_on_the_devices_that_are_free_is_done_earlier() -> None:
    costs = TableCosts({"reference": 5.0, "values": 0.0}, default_seconds=0.0)
    whole, moved = (
        _plan(costs, STREAM, *more, reference=(1,), values=(1,))
        for more in ((), ("migrate{stage=generate,responses=4}",))
    )
    before, after = (step_time(simulate(plan, costs, 12)).mean_seconds for plan in (whole, moved))
    assert after < 0.95 * before


def test_without_such_a_use_it_only_waits() -> None:
    costs = TableCosts({}, default_seconds=0.0)
    whole, moved = (_plan(costs, *more) for more in ((), ("migrate{stage=generate,responses=4}",)))
    before, after = (step_time(simulate(plan, costs, 12)).mean_seconds for plan in (whole, moved))
    assert after >= before
