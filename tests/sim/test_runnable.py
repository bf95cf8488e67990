"""What no backend can run is said before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans import grpo_graph, make_plan, ppo_graph
from rpeg.architecture import Architecture, Experts
from rpeg.errors import InputError, PlanError
from rpeg.ir import Graph, Kind
from rpeg.plan import Devices, Parallelism, Plan
from rpeg.sim.runnable import check_adapters, check_runnable
from rpeg.transforms import parse
from rpeg.workload import Workload, constant

LLAMA = Architecture("small", "llama", 4, 64, 4, 2, 16, 128, 260, 128)
MIXTURE = replace(LLAMA, family="mixtral", experts=Experts(4, 2, 32))


def check(plan: Plan, architecture: Architecture = LLAMA) -> None:
    check_runnable(plan, {model.name: architecture for model in plan.graph.models})


EVERYWHERE = {s.name: (0, 1) for s in ppo_graph().stages}


def changed(stage: str, **fields: object) -> Plan:
    plan = make_plan(ppo_graph(), EVERYWHERE)
    assignments = tuple(replace(a, **fields) if a.stage == stage else a for a in plan.assignments)  # type: ignore[arg-type]
    return replace(plan, assignments=assignments)


@pytest.mark.parametrize(
    "fields",
    [
        {"parallelism": Parallelism(dp=2, zero=3)},
        {"parallelism": Parallelism(dp=2, zero=1)},
        {"parallelism": Parallelism(tp=2, sequence_parallel=True)},
        {"parallelism": Parallelism(pp=2)},
        {"parallelism": Parallelism(pp=2, vpp=2)},
        {"parallelism": Parallelism(cp=2)},
        {"recompute": "selective"},
        {"offload": "optimizer"},
    ],
)
def test_trainers_of_any_layout_are_taken(fields: dict[str, object]) -> None:
    check(changed("train_actor", **fields))


def test_experts_are_dealt_where_there_are_some() -> None:
    check(changed("train_actor", parallelism=Parallelism(dp=2, ep=2)), MIXTURE)


@pytest.mark.parametrize(
    ("architecture", "layout", "said"),
    [
        (replace(LLAMA, family="gpt2"), Parallelism(tp=2), "a gpt2, which tp does not cut here; use dp"),
        (replace(LLAMA, family="bloom"), Parallelism(pp=2), "a bloom, whose layers pp does not deal here"),
        (replace(LLAMA, family="bloom"), Parallelism(cp=2), "a bloom, whose heads cp does not exchange"),
        (replace(LLAMA, output_bias=True), Parallelism(tp=2), "biases after its matrices"),
        (
            replace(LLAMA, kv_heads=1),
            Parallelism(tp=2),
            "tp 2 does not divide the 1 key and value heads of small; tp 1",
        ),
        (replace(LLAMA, ffn=127), Parallelism(tp=2), "does not divide the 127 units"),
        (replace(LLAMA, layers=1), Parallelism(pp=2), "pp 2 is more than the 1 layers of small; use pp 1"),
        (LLAMA, Parallelism(pp=2, vpp=3), "pp 2 × vpp 3 is more than the 4 layers of small"),
        (replace(LLAMA, kv_heads=1), Parallelism(cp=2), "cp 2 with tp 1 does not divide the 1 key"),
        (replace(LLAMA, window=8), Parallelism(cp=2), "within a window of 8"),
        (LLAMA, Parallelism(dp=2, ep=2), "small has no experts to deal to ep 2; use dp"),
        (
            replace(MIXTURE, experts=Experts(3, 2, 32)),
            Parallelism(dp=2, ep=2),
            "does not divide the 3 experts",
        ),
    ],
)
def test_what_does_not_divide_a_model_is_refused_with_both_numbers(
    architecture: Architecture, layout: Parallelism, said: str
) -> None:
    with pytest.raises(PlanError, match=f"stage train_actor: .*{said}"):
        check(changed("train_actor", parallelism=layout), architecture)


@pytest.mark.parametrize(
    ("stage", "fields", "said"),
    [
        ("generate", {"parallelism": Parallelism(pp=2)}, "pp 2; generation is cut by tp alone"),
        (
            "train_actor",
            {"parallelism": Parallelism(dp=2, vpp=2)},
            "vpp 2 with pp 1 and zero 0; chunks are of",
        ),
        ("train_actor", {"parallelism": Parallelism(dp=2, ep=2, zero=3)}, "ep 2 with tp 1 and zero 3"),
        ("train_actor", {"parallelism": Parallelism(dp=2, ep=3)}, "ep 3, which does not divide dp 2"),
        (
            "train_actor",
            {"block": Devices((1, 0)), "parallelism": Parallelism(tp=2)},
            r"is cut over devices \(1, 0\); name them in ascending order",
        ),
    ],
)
def test_what_no_backend_does_is_refused(stage: str, fields: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=f"stage {stage} (has )?{said}"):
        check(changed(stage, **fields))


def transformed(graph: Graph, *texts: str) -> Plan:
    """A plan of one update a step, everything on both devices."""
    after = graph
    for text in texts:
        after = parse(text).apply(after)
    where = dict.fromkeys((s.name for s in after.stages), (0, 1))
    return make_plan(graph, where, texts, workload=Workload(4, 2, constant(4), constant(8)))


def test_fused_stages_are_taken() -> None:
    check(transformed(ppo_graph(), "fuse{a=reference,b=value}", "fuse{a=train_actor,b=train_critic}"))


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (ppo_graph(), "share{actor=actor,critic=critic}"),
        (ppo_graph(), "split{stage=reward,parts=2}"),
        (ppo_graph(), "stream{chunk=1,unit=minibatch}"),
        (ppo_graph(), "bypass{stage=old_logprob}"),
        (grpo_graph(), "prune{stage=old_logprob}"),
    ],
)
def test_what_transforms_make_is_taken(graph: Graph, text: str) -> None:
    check(transformed(graph, text))


def test_a_trainer_gives_itself_nothing_but_old_logprobs() -> None:
    plan = transformed(grpo_graph(), "prune{stage=old_logprob}")
    (trainer,) = (s for s in plan.graph.stages if s.kind is Kind.TRAIN)
    (call,) = trainer.calls
    ops = tuple(replace(op, gives=("scores",)) if op.gives else op for op in call.ops)
    other = replace(trainer, calls=(replace(call, ops=ops),))
    stages = tuple(other if s == trainer else s for s in plan.graph.stages)
    with pytest.raises(PlanError, match="train_actor gives scores itself; use a plan that does not prune"):
        check(replace(plan, graph=replace(plan.graph, stages=stages)))


@pytest.mark.parametrize(
    ("family", "targets", "said"),
    [
        ("gpt2", "all", "small is a gpt2.*train it without lora"),
        ("phi3", "attention", "small is a phi3.*use targets: all"),
    ],
)
def test_adapters_need_matrices(family: str, targets: str, said: str) -> None:
    check_adapters(targets, [LLAMA])
    with pytest.raises(InputError, match=f"lora.targets {targets}: {said}"):
        check_adapters(targets, [replace(LLAMA, family=family)])
