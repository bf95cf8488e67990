"""What no backend can run is said before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans import grpo_graph, make_plan, ppo_graph
from rpeg.errors import PlanError
from rpeg.ir import Graph
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
    ("graph", "text", "said"),
    [
        (ppo_graph(), "share{actor=actor,critic=critic}", "two losses; use a plan without share"),
        (
            ppo_graph(),
            "split{stage=reward,parts=2}",
            "reward is split into 2 parts; use a plan without split",
        ),
        (ppo_graph(), "stream{chunk=1,unit=minibatch}", r"without stream\{unit=minibatch\}"),
        (ppo_graph(), "bypass{stage=old_logprob}", "without bypass"),
        (grpo_graph(), "prune{stage=old_logprob}", "train_actor gives old_logprobs itself"),
    ],
)
def test_what_workers_cannot_run_is_refused_by_the_transforms_name(
    graph: Graph, text: str, said: str
) -> None:
    with pytest.raises(PlanError, match=said):
        check_backends(transformed(graph, text))
