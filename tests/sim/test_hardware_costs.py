"""Costs of plans on described hardware."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.architecture import named
from rpeg.cluster import system
from rpeg.plan import Assignment, Devices, Host, Item, ItemKind, Parallelism, Plan, Slot
from rpeg.sim import Draws, Facts, StageCosts
from rpeg.workload import Workload, constant, lognormal
from samples_of_plans import ppo

MODEL = named("Qwen2.5-7B")
WORK = Workload(64, 2, constant(200), lognormal(300, 1000), minibatches=2)
FACTS = Facts(dict.fromkeys(("actor", "critic", "reference"), MODEL), "bfloat16")
LAYOUT = Parallelism(dp=4, tp=2, zero=3, sequence_parallel=True)


def _plan(first: int = 0, trainer: int = 0, nodes: int = 2, offload: str = "none", **degrees: int) -> Plan:
    """Generation on 8 devices from `first` on, all else on those from `trainer` on."""
    graph = ppo()
    layout = replace(LAYOUT, **degrees)

    def assigned(name: str, kind: str) -> Assignment:
        if kind == "generate":
            block = Devices(tuple(range(first, first + 8)))
            return Assignment(name, block, Parallelism(dp=4, tp=2), 32, offload="none")
        return Assignment(name, Devices(tuple(range(trainer, trainer + 8))), layout, 4, recompute="full")

    found = tuple(
        assigned(s.name, str(s.kind)) if s.models else Assignment(s.name, Host()) for s in graph.stages
    )
    return Plan(graph, system("dgx-h100", nodes=nodes), WORK, found)


def _seconds(plan: Plan, stage: str, share: int = 1) -> float:
    batch = Draws(WORK, 0).whole(0)
    batch = batch.take(range(len(batch.ids) // share))
    item = Item(ItemKind.RUN, stage, 0)
    return StageCosts(plan, FACTS).duration_seconds(item, batch)


@pytest.mark.parametrize("stage", ["reference", "old_logprobs", "train_actor", "generate"])
def test_more_work_takes_longer(stage: str) -> None:
    assert 0 < _seconds(_plan(), stage, share=2) < _seconds(_plan(), stage)


def test_equal_questions_are_answered_once_wherever_they_are_asked() -> None:
    memo: dict = {}  # type: ignore[type-arg]
    batch = Draws(WORK, 0).whole(0)
    for replica in range(4):
        costs = StageCosts(_plan(first=8), FACTS, memo)
        costs.generation(Item(ItemKind.RUN, "generate", 0, 0, replica), batch)
    assert len(memo) == 1


def test_weights_move_to_layouts_that_differ() -> None:
    def transfer(plan: Plan) -> float:
        costs = StageCosts(plan, FACTS)
        names = [
            s
            for s in _slots(plan)
            if s.kind is ItemKind.TRANSFER and s.name.endswith("generate:weights:actor")
        ]
        return costs.tree(names[0].at(1), Draws(WORK, 0).batch(())).seconds

    together, apart = transfer(_plan()), transfer(_plan(first=8))
    assert together > 0
    assert apart > 0


def test_an_answer_is_quick_and_kept() -> None:
    plan, batch = _plan(first=8), Draws(WORK, 0).whole(0)
    costs, item = StageCosts(plan, FACTS), Item(ItemKind.RUN, "train_actor", 0)
    costs.duration_seconds(item, batch)
    tree = costs.tree(item, batch)
    assert costs.tree(item, batch) is tree


def _slots(plan: Plan) -> tuple[Slot, ...]:
    from rpeg.plan import lower

    return tuple(lower(plan.graph, plan.assignments, plan.workload).tasks)
