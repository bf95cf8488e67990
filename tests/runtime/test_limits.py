"""What no backend can run is said before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans import grpo_graph, make_plan, ppo_graph
from rpeg.errors import PlanError
from rpeg.ir import Graph, Kind
from rpeg.plan import Parallelism, Plan
from rpeg.runtime.limits import check_backends
from rpeg.transforms import parse
from rpeg.workload import Workload, constant

EVERYWHERE = {s.name: (0, 1) for s in ppo_graph().stages}


def changed(stage: str, **fields: object) -> Plan:
    plan = make_plan(ppo_graph(), EVERYWHERE)
    assignments = tuple(replace(a, **fields) if a.stage == stage else a for a in plan.assignments)  # type: ignore[arg-type]
    return replace(plan, assignments=assignments)


def test_plans_of_replicas_and_shards_are_taken() -> None:
    check_backends(make_plan(ppo_graph(), EVERYWHERE))
    check_backends(changed("train_actor", parallelism=Parallelism(dp=2, zero=3)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"parallelism": Parallelism(tp=2)}, "tp 2; use dp"),
        ({"parallelism": Parallelism(dp=2, zero=1)}, "zero 1; use 0 .* or 3"),
        ({"recompute": "selective"}, "recompute selective"),
        ({"offload": "optimizer"}, "offload optimizer"),
        ({"backend": "megatron"}, "backend megatron; use torch"),
    ],
)
def test_what_no_backend_does_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=f"stage train_actor has {said}"):
        check_backends(changed("train_actor", **fields))


def transformed(graph: Graph, *texts: str) -> Plan:
    """A plan of one update a step, everything on both devices."""
    after = graph
    for text in texts:
        after = parse(text).apply(after)
    where = dict.fromkeys((s.name for s in after.stages), (0, 1))
    return make_plan(graph, where, texts, workload=Workload(4, 2, constant(4), constant(8)))


def test_fused_stages_are_taken() -> None:
    check_backends(
        transformed(ppo_graph(), "fuse{a=reference,b=value}", "fuse{a=train_actor,b=train_critic}")
    )


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
    check_backends(transformed(graph, text))


def test_a_trainer_gives_itself_nothing_but_old_logprobs() -> None:
    plan = transformed(grpo_graph(), "prune{stage=old_logprob}")
    (trainer,) = (s for s in plan.graph.stages if s.kind is Kind.TRAIN)
    (call,) = trainer.calls
    ops = tuple(replace(op, gives=("scores",)) if op.gives else op for op in call.ops)
    other = replace(trainer, calls=(replace(call, ops=ops),))
    stages = tuple(other if s == trainer else s for s in plan.graph.stages)
    with pytest.raises(PlanError, match="train_actor gives scores itself; use a plan that does not prune"):
        check_backends(replace(plan, graph=replace(plan.graph, stages=stages)))
