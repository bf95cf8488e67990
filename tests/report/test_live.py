"""The live view: what it says of stages, devices, versions and samples, at any width and size of a plan."""

from __future__ import annotations

import io
from functools import cache

import pytest
from rich.console import Console

from plans import PLANS, grpo_graph, make_plan, run
from rpeg.plan import Plan
from rpeg.report.activity import Activity
from rpeg.report.lane_groups import lane_groups
from rpeg.report.live import LiveView, PlainView, make_view
from rpeg.report.stages_now import StagesNow
from rpeg.runtime import StepRecord
from rpeg.trace import Trace, What, step_ends
from rpeg.workload import Workload, constant


def record(step: int) -> StepRecord:
    return StepRecord(step, 4.0, 0.3, None, 12345.0, 0.0, {"actor": step + 1}, {"staleness": 0.5})


def terminal(width: int) -> Console:
    return Console(record=True, width=width, force_terminal=True, file=io.StringIO())


def shown(trace: Trace, width: int, entries: int) -> str:
    """The picture after so many entries of a trace's log."""
    console = terminal(width)
    view = LiveView(console, trace.plan, trace.steps)
    ended = 0
    for entry in trace.entries[:entries]:
        view.on_entry(entry)
        while ended < trace.steps and step_ends(trace)[ended] <= entry.seconds:
            view.on_step(record(ended))
            ended += 1
    view.on_stage("running")
    view.on_evaluation(2, 0.31, {})
    view.on_warning("KL to the reference has risen to 12.3")
    console.print(view.picture(width))
    return console.export_text()


@cache
def large() -> Plan:
    """256 devices, half of them generating in replicas, half training as a gang."""
    first, second = tuple(range(128)), tuple(range(128, 256))
    blocks = {"generate": first, "old_logprob": second, "train_actor": second}
    workload = Workload(128, 2, constant(4), constant(8), 1)
    return make_plan(grpo_graph(), blocks, workload=workload, devices=256)


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("name", sorted(PLANS))
def test_it_fits_the_terminal_and_tells_of_everything(name: str, width: int) -> None:
    trace = run(PLANS[name](), 4)
    text = shown(trace, width, len(trace.entries) * 3 // 4)
    assert max(map(len, text.splitlines())) <= width
    for stage in trace.plan.graph.stages:
        assert stage.name in text
    for lane in trace.plan.order:
        assert lane.name in text
    for what in (
        "step 3/4" if "step 3/4" in text else "step 2/4",
        "tokens/s",
        "actor v",
        "reward 0.300",
        "12.3",
    ):
        assert what in text
    assert "held-out accuracy 0.310" in text
    assert "generated and not trained yet" in " ".join(text.split())


def test_hundreds_of_devices_are_a_few_lines() -> None:
    trace = run(large(), 1, seconds=lambda item: 1.0)
    text = shown(trace, 80, len(trace.entries))
    assert len(text.splitlines()) < 30
    assert "device0-127" in text
    assert "device128-255" in text
    assert [len(group.seen) for group in lane_groups(large(), 12)] == [8, 8, 1]


def test_lanes_are_shown_one_by_one_where_there_is_room() -> None:
    plan = PLANS["tensor_parallel"]()
    assert [g.name for g in lane_groups(plan, 12)] == ["device0", "device1", "device2", "device3", "host0.0"]
    assert [g.name for g in lane_groups(plan, 2)] == ["device0-3", "host0.0"]


@pytest.mark.parametrize("name", sorted(PLANS))
def test_at_the_end_nothing_waits_or_runs(name: str) -> None:
    trace = run(PLANS[name](), 3)
    stages = StagesNow(trace.plan)
    for entry in trace.entries:
        stages.on_entry(entry)
    kept = sum(len(e.ids) for e in trace.entries if e.what is What.KEPT and e.item.step == 2)
    for stage in stages.now(trace.entries[-1].seconds):
        assert not stage.runs
        assert stage.waiting in (None, 0) or kept
    assert stages.untrained in (0, kept)


def test_samples_wait_until_they_are_taken_and_a_generator_is_as_far_as_its_parts() -> None:
    trace = run(PLANS["streamed"](), 2, seconds=lambda item: 1.0)
    stages = StagesNow(trace.plan)
    left, taken = 0, {"reward": 0, "train_actor": 0, "train_critic": 0}
    for entry in trace.entries:
        stages.on_entry(entry)
        left += len(entry.ids) if entry.what is What.PRODUCED else 0
        if entry.what is What.LAUNCH and entry.item.name in taken:
            taken[entry.item.name] += len(entry.ids)
        now = {stage.name: stage for stage in stages.now(entry.seconds)}
        assert {name: now[name].waiting for name in taken} == {n: left - count for n, count in taken.items()}
        if now["generate"].runs:
            made = left - 8 * now["generate"].step
            assert now["generate"].share == made / 8
        assert stages.untrained == left - min(taken["train_actor"], taken["train_critic"])


def test_the_age_of_the_weights_that_are_read_is_told() -> None:
    trace = run(PLANS["asynchronous"](), 4)
    stages = StagesNow(trace.plan)
    ages = {}
    for entry in trace.entries:
        stages.on_entry(entry)
        now = {stage.name: stage for stage in stages.now(entry.seconds)}
        ages[now["generate"].step] = now["generate"].age
        assert now["old_logprob"].age == 0
    assert ages == {-1: 0, 0: 0, 1: 1, 2: 1, 3: 1} or ages == {0: 0, 1: 1, 2: 1, 3: 1}


def test_a_strip_shows_what_filled_each_piece_of_time() -> None:
    trace = run(PLANS["colocated"](), 1, seconds=lambda item: 1.0, latency_seconds=0.0)
    activity = Activity(["device0"])
    for entry in trace.entries:
        activity.on_entry(entry)
    own = [s for s in trace.spans if s.lane == "device0"]
    end, start = own[-1].end_seconds, own[0].start_seconds
    activity.now = end
    assert activity.strip(["device0"], end - start, round(end - start))[-2:] == [
        s.item.name for s in own[-2:]
    ]
    assert activity.busy_share(["device0"], end - start) == pytest.approx(len(own) / (end - start))
    assert activity.current(["device0"]) == []
    activity.now += 10
    assert activity.strip(["device0"], 8, 4) == [None] * 4


def test_lines_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=100)
    view = make_view(console, PLANS["split"](), 4)
    assert isinstance(view, PlainView)
    view.on_stage("running")
    view.on_step(record(0))
    view.on_warning("rewards are all equal")
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "running"
    assert lines[1].startswith("step 1/4")
    assert "staleness 0.50" in lines[1]
    assert lines[2] == "warning: rewards are all equal"
    assert isinstance(make_view(terminal(80), PLANS["split"](), 4), LiveView)
