"""Items whose samples are fixed before anything runs: minibatches and the parts of split stages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.ir import Graph, Kind
from rpeg.plan import Item, ItemKind, Minibatches, Plan, Prompts, check, ids_of_members, lower, membership
from rpeg.sim import Draws, simulate
from rpeg.sim.onestep import one_step
from rpeg.trace import Trace, What
from rpeg.transforms import parse
from rpeg.verify import prove
from rpeg.verify.evidence import Evidence
from samples_of_plans import RandomCosts, TableCosts, assign, grpo, plan_of, ppo, remax, workload

MINIBATCHES = "stream{chunk=1,unit=minibatch}"
GROUPS = "stream{chunk=1,unit=group}"
APART = {"generate": (0, 1), "reference": (2,), "old_logprobs": (2,), "train_actor": (3,)}


def _plan(graph: Graph, *texts: str, minibatches: int = 4, **blocks: tuple[int, ...]) -> Plan:
    applied = tuple(map(parse, texts))
    for transform in applied:
        graph = transform.apply(graph)
    work = workload(prompts=8, longest=40, minibatches=minibatches)
    plan = plan_of(graph, assign(graph, (0,), **blocks), work, devices=4)
    return check(replace(plan, applied=tuple(texts)))


def _finished(trace: Trace) -> dict[Item, float]:
    return {e.item: e.seconds for e in trace.entries if e.what is What.FINISHED}


def _launched(trace: Trace, stage: str) -> list[tuple[Item, float, tuple[int, ...]]]:
    return [
        (e.item, e.seconds, e.ids) for e in trace.entries if e.what is What.LAUNCH and e.item.name == stage
    ]


def _ready(trace: Trace, stage: str, sample: int) -> float:
    """When all that a stage's edges bring of a sample was there, by the log alone."""
    graph = trace.plan.graph
    times = []
    for edge in graph.data_into(stage):
        if graph.stage(edge.src).kind is Kind.GENERATE:
            times += [e.seconds for e in trace.entries if e.what is What.PRODUCED and sample in e.ids]
        else:
            ended = _finished(trace)
            times += [ended[item] for item, _, ids in _launched(trace, edge.src) if sample in ids]
    return max(times)


@pytest.mark.parametrize("seed", range(4))
def test_a_minibatch_starts_when_its_members_and_the_one_before_are_ready(seed: int) -> None:
    plan = _plan(grpo(), GROUPS, MINIBATCHES, **APART)
    trace = simulate(plan, RandomCosts(seed), 3, seed)
    ended, early = _finished(trace), 0
    for item, seconds, ids in _launched(trace, "train_actor"):
        members = max(_ready(trace, "train_actor", i) for i in ids)
        before = [ended[Item(ItemKind.RUN, "train_actor", item.step, item.part - 1)]] if item.part else []
        before += [ended[Item(ItemKind.RUN, "train_actor", item.step - 1, 3)]] if item.step else []
        assert seconds == max([members, *before])
        whole = max(_ready(trace, "train_actor", i) for i in range(item.step * 16, (item.step + 1) * 16))
        early += seconds < whole
    assert early


def test_who_is_in_a_minibatch_depends_on_seed_and_step_alone() -> None:
    plan = _plan(grpo(), GROUPS, MINIBATCHES, **APART)
    found = [
        {item: ids for item, _, ids in _launched(simulate(plan, RandomCosts(c), 3, seed), "train_actor")}
        for c, seed in ((0, 5), (1, 5), (0, 6))
    ]
    assert found[0] == found[1] != found[2]
    for item, ids in found[0].items():
        step = range(item.step * 16, (item.step + 1) * 16)
        assert list(ids) == membership(step, plan.workload, 5, item.step)[item.part]


def test_a_version_is_published_after_the_last_minibatch() -> None:
    plan = _plan(grpo(), MINIBATCHES, **APART)
    trace = simulate(plan, TableCosts({}), 2)
    made = {(s.item.step, s.item.part): dict(s.makes) for s in trace.spans if s.item.name == "train_actor"}
    assert made == {
        (step, part): {"actor": step + 1} if part == 3 else {} for step in range(2) for part in range(4)
    }
    syncs = [e for e in trace.entries if e.what is What.SYNC and e.item.step == 1]
    last = _finished(trace)[Item(ItemKind.RUN, "train_actor", 0, 3)]
    assert {e.seconds for e in syncs} == {last}


def test_a_chunk_of_two_minibatches_is_one_item() -> None:
    plan = _plan(grpo(), "stream{chunk=2,unit=minibatch}", **APART)
    tasks = lower(plan.graph, plan.assignments, plan.workload).tasks_of("train_actor")
    assert [task.members for task in tasks] == [Minibatches(0, 2), Minibatches(2, 4)]
    drawn = membership(range(16), plan.workload, 0, 0)
    assert ids_of_members(Minibatches(0, 2), plan.workload, 0, 0) == (*drawn[0], *drawn[1])


def test_split_stages_hand_over_part_by_part() -> None:
    """Generation takes 40 s a part and the reference 10: three of its four parts hide behind generation."""
    texts = ("split{stage=generate,parts=4}", "split{stage=reference,parts=4}")
    plan = _plan(grpo(), *texts, generate=(0,), reference=(1,), old_logprobs=(1,), train_actor=(1,))
    costs = _Parts({"reference": 10.0, "reward": 0.0}, default_seconds=0.0)
    trace = simulate(plan, costs, 1)
    starts = [seconds for _, seconds, _ in sorted(_launched(trace, "reference"))]
    assert starts == [40.0, 80.0, 120.0, 160.0]
    whole = _plan(grpo(), texts[0], generate=(0,), reference=(1,), old_logprobs=(1,), train_actor=(1,))
    assert [t for _, t, _ in _launched(simulate(whole, costs, 1), "reference")] == [160.0]


class _Parts(TableCosts):
    """Every response takes 40 seconds, whatever its length."""

    def generation(self, item: Item, batch: object) -> object:  # type: ignore[override]
        done = super().generation(item, batch)  # type: ignore[arg-type]
        return replace(done, seconds=40.0, offset_seconds=(40.0,) * len(done.offset_seconds))


def test_parts_line_up_with_the_replicas_of_the_generator() -> None:
    """Part i of an assessment holds what every replica generates in its part i, and waits for no other."""
    texts = ("split{stage=generate,parts=2}", "split{stage=values,parts=2}")
    plan = _plan(ppo(), *texts, generate=(0, 1), values=(2, 3))
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    values = lowered.tasks_of("values")
    assert [task.members for task in values] == [
        *(Prompts(((0, 2), (4, 6))),) * 2,
        *(Prompts(((2, 4), (6, 8))),) * 2,
    ]
    assert [task.share for task in values] == [(0, 2), (1, 2)] * 2
    for task in values:
        sources = {(a.src.part, a.src.replica) for a in lowered.arcs_into[task.slot] if a.why == "rollouts"}
        assert sources == {(task.slot.part, 0), (task.slot.part, 1)}


def test_a_split_stage_waits_for_the_parts_of_a_stream_that_hold_its_own() -> None:
    """Rewards come in the order of completion, advantages in the order of prompts."""
    graph = parse(GROUPS).apply(grpo())
    whole = graph.with_edges(replace(e, chunk=None) if e.dst == "advantages" else e for e in graph.edges)
    plan = _plan(whole, "split{stage=advantages,parts=4}", **APART)
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    assert {a.if_members for t in lowered.tasks_of("advantages") for a in lowered.arcs_into[t.slot]} == {True}
    trace = simulate(plan, RandomCosts(3), 2, 3)
    assert prove(trace).holds
    for item, seconds, ids in _launched(trace, "advantages"):
        first = item.step * 16 + item.part * 2
        assert ids == (first, first + 1, first + 8, first + 9)
        assert seconds >= max(_ready(trace, "advantages", i) for i in ids)


@pytest.mark.parametrize("seed", range(3))
def test_what_joins_two_generators_waits_for_both(seed: int) -> None:
    """Each streams by itself; a minibatch starts when its members are there from both."""
    texts = ("stream{chunk=2,unit=sample}", MINIBATCHES)
    blocks = {"generate": (0,), "greedy": (1,), "old_logprobs": (2,), "train_actor": (3,)}
    plan = _plan(remax(), *texts, **blocks)
    chunked = {edge.dst for edge in plan.graph.edges if edge.chunk is not None}
    assert chunked == {"reward", "baseline", "old_logprobs", "train_actor"}
    trace = simulate(plan, RandomCosts(seed), 2, seed)
    assert prove(trace).holds
    (joined,) = (ids for item, _, ids in _launched(trace, "advantages") if item.step == 1)
    assert sorted(joined) == list(range(16, 32))
    for _, seconds, ids in _launched(trace, "train_actor"):
        assert seconds >= max(_ready(trace, "train_actor", i) for i in ids)


@pytest.mark.parametrize("text", [MINIBATCHES, "split{stage=advantages,parts=4}"])
def test_the_arcs_that_bind_in_a_step_are_those_that_its_run_waited_for(text: str) -> None:
    graph = parse(GROUPS).apply(grpo())
    if text != MINIBATCHES:
        graph = graph.with_edges(replace(e, chunk=None) if e.dst == "advantages" else e for e in graph.edges)
    plan, costs = _plan(graph, text, **APART), RandomCosts(5)
    evidence = Evidence(simulate(plan, costs, 1, 5))
    lowered = evidence.lowered
    found = one_step(plan, lowered, costs, Draws(plan.workload, 5), 0)
    conditional = {arc for arc in lowered.arcs if arc.if_members}
    waited = {arc for slot in lowered.tasks for arc, _ in evidence.sources(slot.at(0)) if arc.if_members}
    assert waited == {arc for arc in conditional if found.binds(arc)} != conditional
