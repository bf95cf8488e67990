"""What is built for a problem, and that it can run."""

from __future__ import annotations

from itertools import islice

import pytest
from problems import problem

from rpeg.errors import PlanError
from rpeg.ir import Kind
from rpeg.plan import ItemKind, check, lower
from rpeg.search import Construction, Permissions, Problem, build, constructions
from rpeg.search.placements import placements
from rpeg.transforms import Changes
from rpeg.transforms import parse as transform


def _names(problem: Problem) -> list[str]:
    return [placement.name for placement in placements(problem)]


def test_two_devices_have_the_known_placements() -> None:
    assert _names(problem()) == [
        "colocated",
        "colocated, sharded",
        "one device",
        "split",
        "split, reference with generate",
        "split, assess with generate",
        "apart, generate on all",
        "apart, generate with actor",
        "apart, generate with critic",
    ]


def test_one_device_has_one() -> None:
    assert _names(problem(devices=1)) == ["colocated"]


def test_an_algorithm_with_one_trainer_cannot_take_them_apart() -> None:
    assert not any(name.startswith("apart") for name in _names(problem("grpo")))


@pytest.mark.parametrize("devices", [3, 4, 8])
def test_more_devices_are_cut_in_more_ways(devices: int) -> None:
    found = list(placements(problem(devices=devices, prompts=16)))
    assert any(p.name.startswith("split 1+") or p.name.startswith("split 2+") for p in found)
    for placement in found:
        assert all(0 <= i < devices for block in placement.blocks.values() for i in block)
    assert len({(tuple(sorted(p.blocks.items())), p.zero) for p in found}) == len(found)


@pytest.mark.parametrize(("algorithm", "devices"), [("ppo", 1), ("ppo", 2), ("grpo", 2), ("grpo", 4)])
def test_constructions_give_plans_that_can_run(algorithm: str, devices: int) -> None:
    given = problem(algorithm, devices, Permissions(staleness=1), evaluate=True)
    built = 0
    for construction in islice(constructions(given), 0, None, devices):  # all on one device, every 4th on 4
        try:
            plan = build(given, construction)
        except PlanError:
            continue  # such as a minibatch that does not divide over all devices
        check(plan)
        assert plan.applied == tuple(map(str, construction.applied))
        graph = given.graph
        for source in plan.applied:
            graph = transform(source).apply(graph)
        assert graph == plan.graph
        built += 1
    assert built >= 2


def test_without_permission_nothing_that_is_learned_changes() -> None:
    for construction in constructions(problem()):
        assert all(t.changes is Changes.SCHEDULE for t in construction.applied)


def _staleness(construction: Construction) -> int:
    delays = [e.delay for e in construction.graph.weights_into("generate")]
    return max(delays) - 1


def test_permission_adds_staleness_up_to_its_bound() -> None:
    found = {_staleness(c) for c in constructions(problem(permissions=Permissions(staleness=2)))}
    assert found == {0, 1, 2}


def test_a_wish_is_met_by_all() -> None:
    wished = Permissions(staleness=2, wished_staleness=1, freshness="latest")
    found = list(constructions(problem(permissions=wished)))
    assert {_staleness(c) for c in found} == {1}
    assert {e.freshness for c in found for e in c.graph.weights_into("generate")} == {"latest"}


def test_asynchronous_plans_work_on_the_step_before_behind_generation() -> None:
    given = problem(permissions=Permissions(staleness=1), evaluate=True)
    construction = next(c for c in constructions(given) if c.name == "split, staleness 1")
    shifts = construction.shifts
    assert (shifts["prompts"], shifts["generate"], shifts["old_logprob"], shifts["train_actor"]) == (
        0,
        0,
        1,
        1,
    )
    plan = build(given, construction)
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    transfer = next(slot for slot in lowered.tasks if slot.kind is ItemKind.TRANSFER)
    assert plan.shifts[transfer] == 0


def test_streams_are_of_groups_where_groups_can_be_judged_early() -> None:
    streamed = [c.applied for c in constructions(problem("grpo")) if c.applied]
    assert {t.unit for applied in streamed for t in applied} == {"group"}  # type: ignore[attr-defined]


def test_generators_hold_whole_models_and_observers_sit_with_the_trainer() -> None:
    given = problem(evaluate=True)
    sharded = next(c for c in constructions(given) if c.name == "colocated, sharded")
    plan = build(given, sharded)
    by_kind = {s.name: (s.kind, plan.assignment(s.name)) for s in plan.graph.stages}
    zeros = {name: a.parallelism.zero for name, (kind, a) in by_kind.items() if kind is Kind.GENERATE}
    assert zeros == {"generate": 0, "evaluate": 0}
    assert by_kind["train_actor"][1].parallelism.zero == 3
    split = build(given, next(c for c in constructions(given) if c.name == "split"))
    assert split.assignment("evaluate").block == split.assignment("train_actor").block


def test_microbatches_are_no_larger_than_what_a_device_gets() -> None:
    plan = build(problem(), next(iter(constructions(problem()))))
    # 16 samples in 2 minibatches on 2 devices
    assert plan.assignment("train_actor").microbatch == 4
    assert plan.assignment("generate").microbatch == 8
    assert plan.assignment("reference").microbatch == 8
