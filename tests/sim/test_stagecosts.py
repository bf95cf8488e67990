"""Costs bound to plans: what they depend on, and what estimates say of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.architecture import Architecture
from rpeg.plan import Item, ItemKind, Plan, check, lower, plan_from_json, plan_to_json
from rpeg.sim import (
    Batch,
    Draws,
    Facts,
    StageCosts,
    device_memory,
    estimate,
    simulate,
    stage_trees,
    step_time,
)
from rpeg.transforms import parse
from rpeg.verify import prove
from samples_of_plans import assign, cluster, plan_of, ppo, workload

TINY = Architecture("tiny", "llama", 2, 64, 4, 4, 16, 128, 259, 128)
FACTS = Facts(dict.fromkeys(("actor", "critic", "reference"), TINY), evaluation_prompts=6)


def _plan(
    *devices: int, streamed: bool = False, zero: int = 0, every: int = 0, **blocks: tuple[int, ...]
) -> Plan:
    graph = ppo(every)
    applied = (parse("stream{chunk=2}"),) if streamed else ()
    work = workload(prompts=8, longest=16, minibatches=2)
    return plan_of(graph, assign(graph, devices, zero=zero, **blocks), work, applied=applied)


def _item(stage: str, replica: int = 0) -> Item:
    return Item(ItemKind.RUN, stage, 0, 0, replica)


def _whole(plan: Plan) -> object:
    return Draws(plan.workload, 0).whole(0)


def test_a_generators_samples_are_complete_within_its_time() -> None:
    plan = _plan(0)
    batch = Draws(plan.workload, 0).whole(0)
    done = StageCosts(plan, FACTS).generation(_item("generate"), batch)
    assert len(done.offset_seconds) == len(batch.ids)
    assert 0 < min(done.offset_seconds) <= max(done.offset_seconds) <= done.seconds
    # a response of more tokens, admitted at the same time, is complete no earlier
    first = [(n, o) for n, o in zip(batch.response_lengths[:4], done.offset_seconds[:4], strict=True)]
    assert [o for _, o in sorted(first)] == sorted(o for _, o in first)


def test_training_over_two_devices_is_faster_than_over_one_for_large_models_only() -> None:
    batch = Draws(_plan(0).workload, 0).whole(0)
    large = replace(TINY, hidden=1024, ffn=4096, layers=8)
    for architecture, faster in ((TINY, False), (large, True)):
        facts = replace(FACTS, architectures=dict.fromkeys(FACTS.architectures, architecture))
        one, two = (
            StageCosts(plan, facts).duration_seconds(_item("train_actor"), batch)
            for plan in (_plan(0), _plan(0, 1))
        )
        assert (two < one) is faster or architecture is TINY


def test_costs_grow_with_what_is_worked_on() -> None:
    plan = _plan(0)
    costs, batch = StageCosts(plan, FACTS), Draws(plan.workload, 0).whole(0)
    for stage in ("reward", "reference", "values", "train_actor"):
        some = costs.duration_seconds(_item(stage), batch.take(range(4)))
        assert some < costs.duration_seconds(_item(stage), batch)


def test_a_slow_reward_takes_what_the_job_says() -> None:
    plan = _plan(0)
    batch = Draws(plan.workload, 0).whole(0)
    slow = replace(FACTS, reward_seconds=0.25, evaluation_reward_seconds=1.0)
    before, after = (StageCosts(plan, f).duration_seconds(_item("reward"), batch) for f in (FACTS, slow))
    assert after - before == pytest.approx(0.25 * len(batch.ids))
    evaluating = _plan(0, every=2)
    quick, late = (StageCosts(evaluating, f).generation(_item("evaluate"), Batch()) for f in (FACTS, slow))
    assert late.seconds - quick.seconds == pytest.approx(6)


def test_the_value_head_is_cheaper_than_the_lm_head() -> None:
    plan = _plan(0)
    costs, batch = StageCosts(plan, FACTS), Draws(plan.workload, 0).whole(0)
    assert costs.duration_seconds(_item("values"), batch) < costs.duration_seconds(_item("reference"), batch)


def test_an_evaluation_answers_prompts_of_its_own() -> None:
    plan = _plan(0, every=2)
    costs = StageCosts(plan, FACTS)
    some = costs.generation(_item("evaluate"), Batch())
    none = StageCosts(plan, replace(FACTS, evaluation_prompts=0)).generation(_item("evaluate"), Batch())
    assert some.seconds > none.seconds
    assert some.offset_seconds == ()


def test_plans_may_share_what_they_asked() -> None:
    memo: dict[object, object] = {}
    one, two = _plan(0), _plan(1)
    shared = [estimate(plan, FACTS, steps=3, memo=memo) for plan in (one, two)]  # type: ignore[arg-type]
    alone = [estimate(plan, FACTS, steps=3) for plan in (one, two)]
    assert shared == alone


def test_an_estimate_is_what_the_simulation_shows() -> None:
    plan = _plan(1, generate=(0,))
    found = estimate(plan, FACTS, steps=4)
    trace = simulate(plan, StageCosts(plan, FACTS), 5)
    assert found.step == step_time(trace)
    assert found.bound.seconds <= found.step.mean_seconds * 1.0001
    assert found.gap >= 0
    assert found.measured_share == 0  # nothing was calibrated
    assert set(found.stages) >= {"generate", "train_actor", "train_actor->generate:weights:actor"}
    assert all(0 <= share <= 1.0001 for share in found.occupancy.values())


def test_trees_add_up_to_what_items_take() -> None:
    plan = _plan(0, 1, streamed=True)
    costs = StageCosts(plan, FACTS)
    trees = stage_trees(plan, costs, Draws(plan.workload, 0))
    assert set(trees) == {s.name for s in plan.graph.stages}
    assert "parts" in trees["reference"].text()
    assert trees["train_actor"].find("optimizer") is not None


def test_memory_counts_what_is_shared_once() -> None:
    def resident(plan: Plan) -> list[set[str]]:
        lowered = lower(plan.graph, plan.assignments, plan.workload)
        return [
            {name for name, size in device.phases[0].parts if name.endswith("parameters") and size}
            for device in device_memory(plan, lowered, FACTS)
        ]

    assert resident(_plan(0)) == [{"actor parameters", "critic parameters", "reference parameters"}]
    split = resident(_plan(1, generate=(0,)))
    assert split == [
        {"actor copy for generate parameters"},
        {"actor parameters", "critic parameters", "reference parameters"},
    ]


def test_sharding_saves_memory_of_the_trainer() -> None:
    def moments(plan: Plan) -> float:
        lowered = lower(plan.graph, plan.assignments, plan.workload)
        device = device_memory(plan, lowered, FACTS)[0]
        return next(size for name, size in device.phases[0].parts if name == "actor moments")

    assert moments(_plan(0, 1, zero=3)) == pytest.approx(moments(_plan(0, 1)) / 2)


def test_simulated_spans_carry_memory() -> None:
    plan = _plan(0)
    assert cluster(2).device(0).kind.memory_bytes > 0
    trace = simulate(plan, StageCosts(plan, FACTS), 2)
    by_stage = {span.item.name: span.memory_bytes for span in trace.spans}
    assert by_stage["train_actor"] > 0
    assert by_stage["reward"] == 0


def _on_one(*texts: str, minibatches: int = 1) -> tuple[Plan, StageCosts]:
    applied = tuple(map(parse, texts))
    graph = ppo()
    for transform in applied:
        graph = transform.apply(graph)
    plan = plan_of(graph, assign(graph, (0,)), workload(prompts=8, longest=16, minibatches=minibatches))
    return plan, StageCosts(plan, FACTS)


def test_fusion_on_a_shared_backbone_saves_a_forward() -> None:
    share, fuse = "share{actor=actor,critic=critic}", "fuse{a=old_logprobs,b=values}"
    (apart, two), (_, one) = _on_one(share), _on_one(share, fuse)
    batch = Draws(apart.workload, 0).whole(0)
    logprobs, values = (two.duration_seconds(_item(s), batch) for s in ("old_logprobs", "values"))
    together = one.duration_seconds(_item("old_logprobs+values"), batch)
    assert logprobs <= together < logprobs + 0.2 * values


def test_scoring_back_to_back_saves_only_the_hand_over() -> None:
    (apart, two), (_, one) = _on_one(), _on_one("fuse{a=reference,b=values}")
    batch = Draws(apart.workload, 0).whole(0)
    separate = sum(two.duration_seconds(_item(s), batch) for s in ("reference", "values"))
    together = one.duration_seconds(_item("reference+values"), batch)
    assert 0.5 * separate < together < separate


def test_a_shared_model_is_trained_and_published_once() -> None:
    (apart, two), (_, one) = _on_one(), _on_one("share{actor=actor,critic=critic}")
    batch = Draws(apart.workload, 0).whole(0)
    actor, critic = (two.duration_seconds(_item(s), batch) for s in ("train_actor", "train_critic"))
    shared = one.duration_seconds(_item("train_actor+train_critic"), batch)
    assert actor <= shared < actor + 0.5 * critic


def test_minibatches_apart_cost_what_they_cost_together_and_publish_once() -> None:
    (plan, whole), (_, parts) = (
        _on_one(minibatches=4),
        _on_one("stream{chunk=1,unit=minibatch}", minibatches=4),
    )
    batch = Draws(plan.workload, 0).whole(0)
    items = [Item(ItemKind.RUN, "train_actor", 0, part) for part in range(4)]
    trees = [parts.tree(item, batch.take(range(i * 4, i * 4 + 4))) for i, item in enumerate(items)]
    assert [tree.find("publish") is not None for tree in trees] == [False, False, False, True]
    assert sum(tree.seconds for tree in trees) == pytest.approx(
        whole.duration_seconds(_item("train_actor"), batch), rel=0.3
    )


def test_a_shared_model_has_one_set_of_weights_and_both_heads() -> None:
    plan, _ = _on_one("share{actor=actor,critic=critic}")
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    parts = dict(device_memory(plan, lowered, FACTS)[0].phases[0].parts)
    assert "critic parameters" not in parts
    assert parts["actor parameters"] == 4 * (TINY.parameters("lm") + TINY.head_parameters("value"))


def test_a_plan_of_all_transforms_together_is_written_read_estimated_and_proven() -> None:
    texts = (
        "share{actor=actor,critic=critic}",
        "fuse{a=old_logprobs,b=values}",
        "split{stage=generate,parts=4}",
        "split{stage=old_logprobs+values,parts=4}",
        "split{stage=reference,parts=2}",
        "async{stage=generate,staleness=1,freshness=exact}",
        "stream{chunk=1,unit=minibatch}",
    )
    graph = ppo()
    for text in texts:
        graph = parse(text).apply(graph)
    shifts = {s.name: 1 for s in graph.stages if s.name != "generate"}
    work = workload(prompts=16, samples_per_prompt=4, longest=32, minibatches=4)
    plan = check(plan_of(graph, assign(graph, (2, 3), zero=3, generate=(0, 1)), work, 4, shifts))
    assert plan_from_json(plan_to_json(plan)) == plan
    found = estimate(plan, FACTS, steps=3)
    assert found.bound.seconds <= found.step.mean_seconds * 1.0001
    trace = simulate(plan, StageCosts(plan, FACTS), 4)
    assert prove(trace).holds
