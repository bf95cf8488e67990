"""The scheduler, driven by the simulator over plans and durations of all kinds."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_plans import plans
from rpeg.errors import RunError
from rpeg.ir import Kind
from rpeg.plan import Item, ItemKind, Plan, check
from rpeg.schedule import Cancel, Failed, Finished, Launch, Produced, Scheduler, SyncWeights, source_step
from rpeg.sim import simulate
from rpeg.trace import Trace, What
from rpeg.transforms import parse
from samples_of_plans import RandomCosts, TableCosts, assign, plan_of, ppo, workload


@settings(max_examples=60, deadline=None)
@given(plans(), st.integers(0, 2**16), st.integers(0, 3), st.integers(1, 6))
def test_every_legal_plan_drains_and_keeps_its_promises(
    plan: Plan, seed: int, first_step: int, more: int
) -> None:
    trace = simulate(plan, RandomCosts(seed), first_step + more, seed, first_step)
    _runs_everything_once(trace)
    _lanes_keep_their_order(trace)
    _waits_for_its_sources(trace)
    _versions_are_within_bounds(trace)
    _trains_every_sample_once(trace)
    assert trace == simulate(plan, RandomCosts(seed), first_step + more, seed, first_step)


@pytest.mark.parametrize("freshness", ["exact", "latest"])
def test_a_long_asynchronous_run_with_rare_evaluation_forgets_nothing_that_it_needs(freshness: str) -> None:
    graph = ppo(evaluate_every=7)
    shifts = {s.name: 1 for s in graph.stages if s.name != "generate"}
    asynchronous = parse(f"async{{stage=generate,staleness=2,freshness={freshness}}}")
    assignments = assign(graph, (1,), generate=(0,))
    plan = check(plan_of(graph, assignments, workload(prompts=1), shifts=shifts, applied=(asynchronous,)))
    trace = simulate(plan, RandomCosts(0), 70)
    _runs_everything_once(trace)
    _waits_for_its_sources(trace)


def _scheduler(trace: Trace) -> Scheduler:
    return Scheduler(trace.plan, trace.steps, trace.first_step)


def _runs_everything_once(trace: Trace) -> None:
    tasks = _scheduler(trace).lowered.tasks
    due = {
        slot.at(step)
        for slot, task in tasks.items()
        for step in range(trace.first_step, trace.steps + 1)
        if task.fires(step, trace.steps)
    }
    launched = Counter(e.item for e in trace.entries if e.what.begins)
    finished = Counter(e.item for e in trace.entries if e.what is What.FINISHED)
    assert launched == finished == Counter(due)


def _lanes_keep_their_order(trace: Trace) -> None:
    for lane in trace.plan.order:
        spans = [span for span in trace.spans if span.lane == lane.name]
        assert all(a.end_seconds <= b.start_seconds for a, b in pairwise(spans))
        place = {turn.slot: (i, turn.shift) for i, turn in enumerate(lane.turns)}
        ran = [(s.item.step + place[s.item.slot][1], place[s.item.slot][0]) for s in spans]
        assert ran == sorted(set(ran))


def _waits_for_its_sources(trace: Trace) -> None:
    scheduler = _scheduler(trace)
    tasks, happened = scheduler.lowered.tasks, {}
    for entry in trace.entries:
        if entry.what in (What.PRODUCED, What.FINISHED):
            happened[entry.item, entry.part] = entry.seq
    for entry in trace.entries:
        if not entry.what.begins:
            continue
        for arc in scheduler.lowered.arcs_into[entry.item.slot]:
            step = source_step(tasks[arc.src], entry.item.step - arc.delay, trace.steps)
            if step is not None and step >= trace.first_step:
                assert happened[arc.src.at(step), arc.part] < entry.seq


def _versions_are_within_bounds(trace: Trace) -> None:
    delays = {(e.dst, e.model): e.delay for e in trace.plan.graph.edges if e.model is not None}
    exact = {(e.dst, e.model) for e in trace.plan.graph.edges if e.model and e.freshness == "exact"}
    for entry in trace.entries:
        if entry.what is not What.LAUNCH:
            continue
        for model, version in entry.versions.items():
            step, delay = entry.item.step, delays[entry.item.name, model]
            oldest = max(0, step + 1 - delay)
            if (entry.item.name, model) in exact:
                assert version == oldest
            else:
                assert max(oldest, trace.first_step) <= version <= max(step, trace.first_step)


def _trains_every_sample_once(trace: Trace) -> None:
    samples = trace.plan.workload.samples
    trainers = [s.name for s in trace.plan.graph.stages if s.kind is Kind.TRAIN]
    for step in range(trace.first_step, trace.steps):
        for name in ("generate", "reference", *trainers):
            spans = [s for s in trace.spans if (s.item.name, s.item.step) == (name, step)]
            ids = Counter(i for span in spans for i in span.ids)
            assert ids == Counter(range(step * samples, (step + 1) * samples)), (name, step)


def _colocated() -> Plan:
    return plan_of(ppo(), assign(ppo(), (0,)), devices=1)


def _drive(scheduler: Scheduler, until: str) -> Item:
    """Runs everything at once until a stage is launched; returns its item."""
    waiting = list(scheduler.start())
    while waiting:
        command = waiting.pop(0)
        assert isinstance(command, (Launch, SyncWeights))
        if command.item.name == until:
            return command.item
        if command.item.name == "generate":
            assert isinstance(command, Launch)
            for part in command.parts:
                waiting += scheduler.on(Produced(command.item, part, command.ids, (1,) * len(command.ids)))
        waiting += scheduler.on(Finished(command.item))
    raise AssertionError(f"{until} was never launched")


def test_samples_carry_the_steps_ids() -> None:
    trace = simulate(_colocated(), TableCosts({}), 3)
    launches = {
        e.item.step: e.ids for e in trace.entries if e.item.name == "generate" and e.what is What.LAUNCH
    }
    assert launches == {step: tuple(range(8 * step, 8 * step + 8)) for step in range(3)}


def test_synchronous_versions_count_the_steps() -> None:
    trace = simulate(_colocated(), TableCosts({}), 3)
    for span in trace.spans:
        if span.item.name == "train_actor":
            step = span.item.step
            assert (dict(span.reads), dict(span.makes)) == ({"actor": step}, {"actor": step + 1})


def test_the_evaluation_also_sees_the_last_weights() -> None:
    graph = ppo(evaluate_every=2)
    trace = simulate(plan_of(graph, assign(graph, (0,)), devices=1), TableCosts({}), 3)
    seen = [(s.item.step, s.reads["actor"]) for s in trace.spans if s.item.name == "evaluate"]
    assert seen == [(0, 0), (2, 2), (3, 3)]


def test_an_event_for_an_item_that_does_not_run_is_refused() -> None:
    scheduler = Scheduler(_colocated(), 1)
    scheduler.start()
    with pytest.raises(RunError, match=r"Finished for train_actor\[step 0, part 0, replica 0\]"):
        scheduler.on(Finished(Item(ItemKind.RUN, "train_actor", 0)))


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (lambda item: Finished(item), "still owes the parts"),
        (lambda item: Produced(item, 7, tuple(range(8)), (1,) * 8), "does not owe"),
        (lambda item: Produced(item, 0, tuple(range(7)), (1,) * 7), "7 samples in part 0 of 8"),
        (lambda item: Produced(item, 0, (0,) * 8, (1,) * 8), "1 samples in part 0 of 8"),
    ],
)
def test_a_generator_owes_each_sample_once(event: object, message: str) -> None:
    scheduler = Scheduler(_colocated(), 1)
    item = _drive(scheduler, "generate")
    with pytest.raises(RunError, match=message):
        scheduler.on(event(item))  # type: ignore[operator]


def test_a_part_that_was_produced_is_not_owed_again() -> None:
    scheduler = Scheduler(_colocated(), 1)
    item = _drive(scheduler, "generate")
    produced = Produced(item, 0, tuple(range(8)), (1,) * 8)
    scheduler.on(produced)
    with pytest.raises(RunError, match="does not owe"):
        scheduler.on(produced)


def test_after_a_failure_nothing_is_launched() -> None:
    scheduler = Scheduler(_colocated(), 2)
    item = _drive(scheduler, "train_actor")
    running = [i for i in scheduler.running if i != item]
    (cancel,) = scheduler.on(Failed(item, "out of memory"))
    assert isinstance(cancel, Cancel)
    assert set(cancel.running) == set(running)
    assert "out of memory" in cancel.reason
    for other in running:
        assert scheduler.on(Finished(other)) == ()
    assert scheduler.done


def test_a_hang_says_who_waits_for_whom() -> None:
    scheduler = Scheduler(_colocated(), 1)
    _drive(scheduler, "generate")
    waiting = {item.name: what for item, what in scheduler.waiting()}
    assert waiting == {"reward": "generate[step 0, part 0, replica 0]"}


def test_state_stays_bounded_over_a_long_run() -> None:
    """Nothing that a past step left behind grows with the run."""
    plan = _colocated()
    scheduler = Scheduler(plan, 400)
    commands = list(scheduler.start())
    while commands:
        command = commands.pop(0)
        if command.item.name == "generate":  # type: ignore[union-attr]
            for part in command.parts:  # type: ignore[union-attr]
                ids = command.ids  # type: ignore[union-attr]
                commands += scheduler.on(Produced(command.item, part, ids, (1,) * len(ids)))  # type: ignore[union-attr]
        commands += scheduler.on(Finished(command.item))  # type: ignore[union-attr]
    assert scheduler.done
    assert len(scheduler._finished) < 400
    assert len(scheduler._held_back) == 0
