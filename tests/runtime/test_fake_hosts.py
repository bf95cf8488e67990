"""Several fake processes of several lanes each: a gang costs one call of each, and their number changes no time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from plans import make_plan, ppo_graph
from random_plans import FixedCosts
from rpeg.ir import Kind
from rpeg.plan import Item, Plan, lower, write_plan
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.driver import Driver
from rpeg.runtime.fake.costs import FakeCosts
from rpeg.runtime.fake.here import HereFake
from rpeg.runtime.fake.host import Post
from rpeg.runtime.fake.injection import NOTHING
from rpeg.runtime.fake.pretend import initial_weights, lanes_of_plan, shared_out
from rpeg.runtime.fake.virtual import VirtualLoop
from rpeg.runtime.run_directory import RunDirectory
from rpeg.runtime.work import Answer, Work
from rpeg.sim import simulate
from rpeg.trace import begin_stretch, end_stretch, read_traces
from rpeg.verify import prove
from runtime.runs import Silent

STEPS = 3
Called = dict[Item, list[tuple[str, ...]]]


class Counting(HereFake):
    """Notes the lanes that each item was called for."""

    def __init__(self, post: Post, called: Called) -> None:
        super().__init__(post)
        self.called = called

    def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        self.called[work.item].append(work.lanes)
        return super().run(work, references)

    def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        self.called[work.item].append(work.lanes)
        return super().receive(work, references)


def _plan() -> Plan:
    stages = [s.name for s in ppo_graph().stages if s.kind is not Kind.HOST]
    zero = {s.name: 3 for s in ppo_graph().stages if s.kind in (Kind.INFERENCE, Kind.TRAIN)}
    return make_plan(ppo_graph(), dict.fromkeys(stages, (0, 1, 2, 3)), devices=4, zero=zero)


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_a_gang_is_called_once_in_each_process(tmp_path: Path, processes: int) -> None:
    plan, called = _plan(), defaultdict[Item, list[tuple[str, ...]]](list)
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    costs = FixedCosts.draw(lowered, 1)
    write_plan(plan, tmp_path / "plan.json")
    trace = begin_stretch(tmp_path, "fake", STEPS, 0)

    async def drive() -> None:
        handles = {}
        for number, own in enumerate(shared_out(lanes_of_plan(plan), processes)):
            post = Post(f"fake{number}", plan, FakeCosts(costs, NOTHING, 1.0, 0.0), 0, trace)
            handles |= dict.fromkeys(own, Counting(post, called))
        keep = Checkpoints(RunDirectory(tmp_path), every=0, keep=1, seed=0)
        weights = initial_weights(plan, 0)
        await Driver(plan, STEPS, 0, handles, weights, trace, keep, Silent([]), 1e9).run()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(drive())
    end_stretch(trace)
    (ran,) = read_traces(tmp_path)
    assert prove(ran).broken == ()
    assert len({span.worker for span in ran.spans}) == processes
    for item, calls in called.items():
        assert [lane for lanes in calls for lane in lanes] == list(lowered.tasks[item.slot].lanes)
    gang = called[Item(lowered.tasks_of("train_actor")[0].slot.kind, "train_actor", 0)]
    assert len(gang) == {1: 1, 2: 2, 5: 4}[processes]
    ends = {(s.item, s.lane): s.end_seconds for s in simulate(plan, costs, STEPS).spans}
    assert {(s.item, s.lane): s.end_seconds for s in ran.spans} == pytest.approx(ends, abs=1e-9)
