"""Items and arcs of a step, counted by hand on small plans."""

from __future__ import annotations

from collections import Counter

import pytest

from rpeg.errors import PlanError
from rpeg.ir import Chunk, Graph, Unit
from rpeg.plan import ItemKind, Lowered, Slot, lower, prompts_of_replica
from rpeg.transforms import parse
from samples_of_plans import assign, grpo, ppo, workload


def _slots(lowered: Lowered) -> Counter[str]:
    return Counter(f"{slot.kind} {slot.name}" for slot in lowered.tasks)


def _run(name: str, part: int = 0, replica: int = 0) -> Slot:
    return Slot(ItemKind.RUN, name, part, replica)


def test_colocated_on_one_device_is_one_item_a_stage_and_no_transfer() -> None:
    lowered = lower(ppo(), assign(ppo(), (0,)), workload())
    assert _slots(lowered) == Counter(f"run {stage.name}" for stage in ppo().stages)
    assert lowered.copies == ()
    assert [(p.stage, p.samples) for p in lowered.parts] == [("generate", 8)]
    # 14 data edges; generate and old_logprobs read what train_actor makes, values what train_critic does:
    # an arc each, and one back that keeps the trainer from overwriting; each trainer follows itself
    why = Counter(arc.why for arc in lowered.arcs)
    assert (why["order"], why["weights:actor"], why["weights:critic"]) == (3, 3, 2)
    assert len(lowered.arcs) == 14 + 8


def test_two_data_parallel_replicas_run_apart_and_train_together() -> None:
    lowered = lower(ppo(), assign(ppo(), (0, 1)), workload())
    slots = _slots(lowered)
    assert {name for name, count in slots.items() if count == 2} == {
        "run generate",
        "run reference",
        "run old_logprobs",
        "run values",
    }
    assert lowered.tasks[_run("train_actor")].lanes == ("device0", "device1")
    assert [(p.replica, p.samples) for p in lowered.parts] == [(0, 4), (1, 4)]
    # every replica of an assessment takes a share of the whole batch, so it waits for both generators
    into = {arc.src for arc in lowered.arcs_into[_run("reference", replica=1)]}
    assert into == {_run("generate", replica=0), _run("generate", replica=1)}
    assert lowered.tasks[_run("reference", replica=1)].share == (1, 2)


def test_sharded_assessment_is_a_gang_and_sharded_weights_are_moved_to_generation() -> None:
    zero_3 = assign(grpo(), (0, 1), zero=3)
    lowered = lower(grpo(), zero_3, workload())
    assert lowered.tasks[_run("reference")].lanes == ("device0", "device1")
    slots = _slots(lowered)
    assert (slots["run reference"], slots["run old_logprobs"], slots["run generate"]) == (1, 1, 2)
    # the actor's own assessment uses the trainer's shards; generation needs the whole model, on each device
    (copy,) = lowered.copies
    assert copy.stages == ("generate",)
    assert slots[f"transfer {copy.name}"] == 2


def test_a_split_moves_weights_once_a_replica_of_the_consumer() -> None:
    lowered = lower(ppo(), assign(ppo(), (1,), generate=(0,)), workload())
    (copy,) = lowered.copies
    assert (copy.name, copy.stages, copy.delay) == ("train_actor->generate:weights:actor", ("generate",), 1)
    transfer = Slot(ItemKind.TRANSFER, copy.name)
    assert lowered.tasks[transfer].lanes == ("device0",)
    assert lowered.tasks[transfer].first_step == 1
    assert {(a.src, a.delay) for a in lowered.arcs_into[transfer]} == {
        (_run("train_actor"), 1),
        (_run("generate"), 1),
    }
    assert {(a.src, a.delay) for a in lowered.arcs_into[_run("generate")]} == {(transfer, 0)}


def test_consumers_on_one_block_share_a_copy() -> None:
    lowered = lower(ppo(), assign(ppo(), (1,), generate=(0,), old_logprobs=(0,)), workload())
    (copy,) = lowered.copies
    assert copy.stages == ("generate", "old_logprobs")


def test_asynchrony_moves_weights_also_where_all_is_colocated() -> None:
    graph = parse("async{staleness=1}").apply(ppo())
    lowered = lower(graph, assign(graph, (0,)), workload())
    (copy,) = lowered.copies
    assert (copy.stages, copy.delay, copy.first_step) == (("generate",), 2, 2)


@pytest.mark.parametrize(("freshness", "first_step"), [("exact", 3), ("latest", 1)])
def test_a_copy_receives_its_first_version_when_there_is_one_to_receive(
    freshness: str, first_step: int
) -> None:
    graph = parse(f"async{{staleness=2,freshness={freshness}}}").apply(ppo())
    (copy,) = lower(graph, assign(graph, (1,), generate=(0,)), workload()).copies
    assert copy.first_step == first_step


def _streamed(graph: Graph, transform: str, **blocks: tuple[int, ...]) -> Lowered:
    graph = parse(transform).apply(graph)
    return lower(graph, assign(graph, (1,), **blocks), workload())


def test_streaming_cuts_the_batch_into_parts_that_are_waited_for_one_by_one() -> None:
    lowered = _streamed(ppo(), "stream{chunk=3}", generate=(0,))
    assert [p.samples for p in lowered.parts] == [3, 3, 2]
    assert _slots(lowered)["run values"] == 3
    arcs = {(a.src, a.part) for a in lowered.arcs_into[_run("values", part=1)] if a.why == "rollouts"}
    assert arcs == {(_run("generate"), 1)}
    assert {a.src for a in lowered.arcs_into[_run("advantages")] if a.why == "values"} == {
        _run("values", part=i) for i in range(3)
    }
    # the trainer sees the whole batch
    assert [a.part for a in lowered.arcs_into[_run("train_critic")] if a.why == "rollouts"] == [None]


def test_parts_of_two_replicas_merge_by_their_place_in_the_stream() -> None:
    lowered = _streamed(ppo(), "stream{chunk=2}", generate=(0, 1))
    assert [(p.position, p.replica, p.samples) for p in lowered.parts] == [
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
        (1, 1, 2),
    ]


def test_parts_of_groups_hold_whole_groups() -> None:
    lowered = _streamed(grpo(), "stream{chunk=2,unit=group}", generate=(0,))
    assert [p.samples for p in lowered.parts] == [4, 4]
    assert _slots(lowered)["run advantages"] == 2


def test_larger_chunks_downstream_cover_several_base_parts() -> None:
    streamed = parse("stream{chunk=2}").apply(grpo())
    wide = streamed.with_edges(
        e if e.dst != "reference" else type(e)(e.src, e.dst, e.data, chunk=Chunk(4, Unit.SAMPLE))
        for e in streamed.edges
    )
    lowered = lower(wide, assign(wide, (1,), generate=(0,)), workload())
    assert lowered.tasks[_run("reference", part=1)].covers == (2, 3)
    assert lowered.tasks[_run("reward", part=3)].covers == (3,)


def test_two_units_at_once_are_refused() -> None:
    by_sample = parse("stream{chunk=2}").apply(grpo())
    mixed = by_sample.with_edges(
        e if e.dst != "reference" else type(e)(e.src, e.dst, e.data, chunk=Chunk(1, Unit.GROUP))
        for e in by_sample.edges
    )
    with pytest.raises(PlanError, match="streams in group and sample at once"):
        lower(mixed, assign(mixed, (1,)), workload())


def test_evaluation_is_an_observer_with_a_slot_of_its_own() -> None:
    graph = ppo(evaluate_every=2)
    task = lower(graph, assign(graph, (0,)), workload()).tasks[_run("evaluate")]
    assert [step for step in range(4) if task.fires(step, 3)] == [0, 2, 3]
    assert task.covers == ()


def test_prompts_of_replicas_are_a_partition() -> None:
    for prompts, replicas in ((4, 2), (5, 3), (7, 7), (2, 3)):
        parts = [prompts_of_replica(prompts, r, replicas) for r in range(replicas)]
        assert [i for part in parts for i in part] == list(range(prompts))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
