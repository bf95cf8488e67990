"""The virtual clock: times computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.errors import InputError
from rpeg.plan import Plan, check
from rpeg.sim import (
    Batch,
    Completions,
    Costs,
    busy_seconds,
    lane_bound,
    occupancy,
    ordered,
    simulate,
    step_time,
)
from rpeg.trace import Trace, What, step_ends
from rpeg.transforms import Transform, parse
from rpeg.workload import constant
from samples_of_plans import TableCosts, assign, cluster, grpo, plan_of, ppo, workload

# Responses of 10 tokens, a second each.
FIXED = replace(workload(), response_lengths=constant(10))
SECONDS = {
    "reward": 0.0,
    "advantages": 0.0,
    "reference": 2.0,
    "old_logprobs": 3.0,
    "values": 4.0,
    "train_actor": 20.0,
    "train_critic": 10.0,
    "train_actor->generate:weights:actor": 1.0,
}
COSTS = TableCosts(SECONDS)


def _plan(
    *applied: Transform,
    default: tuple[int, ...] = (0,),
    shift: int = 0,
    costs: Costs = COSTS,
    **blocks: tuple[int, ...],
) -> Plan:
    graph = ppo()
    for transform in applied:
        graph = transform.apply(graph)
    bare = Plan(graph, cluster(2), FIXED, assign(graph, default, **blocks), (), tuple(map(str, applied)))
    return check(ordered(bare, {s.name: shift for s in graph.stages if s.name != "generate"}, costs))


def test_colocated_is_the_sum_of_its_stages() -> None:
    time = step_time(simulate(_plan(), COSTS, 4))
    assert time.mean_seconds == time.p50_seconds == time.p95_seconds == 10 + 2 + 3 + 4 + 20 + 10
    assert time.steps == 3


def test_a_step_ends_with_its_last_trainer() -> None:
    assert dict(step_ends(simulate(_plan(), COSTS, 2))) == {0: 49.0, 1: 98.0}


def test_the_overhead_of_a_dispatch_counts_for_each_item_in_a_row() -> None:
    plain, slow = (
        step_time(simulate(_plan(), TableCosts(SECONDS, dispatch_seconds=d), 3)) for d in (0.0, 0.5)
    )
    # generate, three assessments, reward is behind generation beside them, advantages, two trainers
    assert slow.mean_seconds - plain.mean_seconds == 0.5 * 7


def test_critic_and_actor_on_two_devices_train_side_by_side() -> None:
    trace = simulate(_plan(train_critic=(1,), values=(1,)), COSTS, 4)
    # device 0: generate, reference, old logprobs, actor; device 1: values beside the assessments, critic beside it
    assert step_time(trace).mean_seconds == 10 + 5 + 20
    assert dict(busy_seconds(trace)) == {"device0": 35.0, "device1": 14.0, "host0.0": 0.0}
    assert occupancy(trace)["device1"] == 14 / 35
    assert lane_bound(trace).what == "device0"


def test_the_trainer_that_generation_waits_for_goes_first() -> None:
    """The critic's training, though longer, then runs beside the transfer and the generation of the next step."""
    costs = TableCosts({**SECONDS, "train_actor": 5.0, "train_critic": 10.0})
    trace = simulate(_plan(default=(1,), generate=(0,), costs=costs), costs, 4)
    assert step_time(trace).mean_seconds == 5 + 1 + 10 + 9


def test_streamed_assessment_hides_behind_generation() -> None:
    """Parts of 2 samples that take 0.5 s a stage; the last ones leave at 10 s. The critic trains beside generation."""
    parts = {"reference": 0.5, "old_logprobs": 0.5, "values": 0.5, "train_critic": 2.0}
    ragged = _Ragged(TableCosts({**SECONDS, **parts}))
    whole = simulate(_plan(default=(1,), generate=(0,)), COSTS, 3)
    streamed = simulate(_plan(parse("stream{chunk=2}"), default=(1,), costs=ragged, generate=(0,)), ragged, 3)
    assert step_time(whole).mean_seconds == 20 + 1 + 10 + 9
    assert step_time(streamed).mean_seconds == 20 + 1 + 10 + 1.5


class _Ragged:
    """As the costs within, but pairs of samples are complete after 1, 4, 7 and 10 s."""

    dispatch_seconds = 0.0

    def __init__(self, inner: TableCosts) -> None:
        self._inner = inner
        self.duration_seconds, self.memory_bytes = inner.duration_seconds, inner.memory_bytes

    def generation(self, item: object, batch: Batch) -> Completions:
        return Completions(10.0, tuple(1.0 + 3.0 * (i // 2) for i in range(len(batch.ids))))


def test_asynchrony_overlaps_generation_with_the_training_of_the_step_before() -> None:
    trace = simulate(_plan(parse("async{staleness=1}"), default=(1,), shift=1, generate=(0,)), COSTS, 8)
    assert step_time(trace).mean_seconds == 2 + 3 + 4 + 20 + 10  # device 1 is never idle
    assert lane_bound(trace).seconds == 39
    assert occupancy(trace)["device1"] == pytest.approx(1.0)


def test_parts_leave_in_the_order_of_completion() -> None:
    plan = plan_of(ppo(), assign(ppo(), (0,)), devices=1, applied=(parse("stream{chunk=2}"),))
    trace = simulate(plan, TableCosts({}), 1, seed=3)
    lengths = [int(n) for n in plan.workload.draw(3, 0)[1]]
    ids = [i for e in trace.entries if e.what is What.PRODUCED for i in e.ids]
    assert [lengths[i] for i in ids] == sorted(lengths)
    produced = [e.seconds for e in trace.entries if e.what is What.PRODUCED]
    assert produced == [float(max(lengths[i] for i in ids[n : n + 2])) for n in range(0, 8, 2)]


def test_groups_leave_whole_with_their_last_response() -> None:
    plan = plan_of(grpo(), assign(grpo(), (0,)), devices=1, applied=(parse("stream{chunk=1,unit=group}"),))
    trace = simulate(plan, TableCosts({}), 1, seed=5)
    lengths = [int(n) for n in plan.workload.draw(5, 0)[1]]
    parts = [(e.seconds, e.ids) for e in trace.entries if e.what is What.PRODUCED]
    assert sorted(tuple(sorted(ids)) for _, ids in parts) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [seconds for seconds, _ in parts] == sorted(max(lengths[i] for i in ids) for _, ids in parts)


def _spans(trace: Trace, name: str) -> list[object]:
    return [span for span in trace.spans if span.item.name == name]


def test_spans_say_what_was_read_made_and_worked_on() -> None:
    trace = simulate(_plan(default=(1,), generate=(0,)), COSTS, 2)
    train = next(s for s in trace.spans if s.item.name == "train_actor" and s.item.step == 1)
    assert (train.worker, train.lane, train.reads, train.makes) == (
        "device1",
        "device1",
        {"actor": 1},
        {"actor": 2},
    )
    assert train.digests == {"actor@1": "sim:actor@1", "actor@2": "sim:actor@2"}
    assert train.tokens == 8 * (3 + 10)
    sync = next(s for s in trace.spans if s.item.name.startswith("train_actor->"))
    assert (sync.reads, sync.makes, sync.digests) == ({"actor": 1}, {}, {"actor@1": "sim:actor@1"})
    assert trace.entries[sync.launch].what is What.SYNC


def test_a_gang_has_a_span_on_each_lane_and_shares_its_samples() -> None:
    trace = simulate(plan_of(ppo(), assign(ppo(), (0, 1))), COSTS, 1)
    first, second = (s for s in trace.spans if s.item.name == "train_actor")
    assert (first.lane, second.lane) == ("device0", "device1")
    assert sorted((*first.ids, *second.ids)) == list(range(8))


def test_a_seed_fixes_the_trace() -> None:
    plan = plan_of(ppo(), assign(ppo(), (0, 1)))
    assert simulate(plan, COSTS, 3, seed=1) == simulate(plan, COSTS, 3, seed=1)
    assert simulate(plan, COSTS, 3, seed=1) != simulate(plan, COSTS, 3, seed=2)


def test_fill_and_drain_are_left_out() -> None:
    """In the last step of an asynchronous run nothing is generated, in the first nothing is trained beside it."""
    plan = _plan(parse("async{staleness=1}"), default=(1,), shift=1, generate=(0,))
    short, long = (step_time(simulate(plan, COSTS, steps)) for steps in (4, 12))
    assert (short.steps, long.steps) == (1, 9)
    assert short.mean_seconds == long.mean_seconds
    with pytest.raises(
        InputError, match="ends 3 steps and the pipeline needs 2 to fill and 1 to drain: at least 4"
    ):
        step_time(simulate(plan, COSTS, 3))


def test_a_resumed_stretch_has_the_same_steady_step() -> None:
    plan = _plan(default=(1,), generate=(0,))
    fresh, resumed = (step_time(simulate(plan, COSTS, first + 4, 0, first)) for first in (0, 7))
    assert fresh == resumed
