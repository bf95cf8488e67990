"""Plans for described hardware: layouts that fit, and plans that simulate and are proven."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache

import pytest

from rpeg import algorithms, architecture
from rpeg.cluster import Cluster, system
from rpeg.errors import InfeasibleError, InputError, PlanError
from rpeg.ir import Kind
from rpeg.plan import Devices, Parallelism, Plan, check, lower, plan_from_json, plan_to_json
from rpeg.search import Permissions, Problem, build, constructions, plan_job
from rpeg.search.constructions import unordered
from rpeg.search.placements import Sizes
from rpeg.sim import Facts, StageCosts, device_memory, simulate
from rpeg.sim.hardware import check_layouts
from rpeg.verify import prove
from rpeg.workload import Workload, constant, lognormal

WORK = Workload(16, 2, constant(200), lognormal(300, 1000), minibatches=2)
MIXED = Cluster(
    "mixed",
    (*system("dgx-h100").racks, *system("dgx-a100").racks),
    system("dgx-h100").link,
)


def problem(
    cluster: Cluster, algorithm: str = "grpo", actor: str = "Qwen2.5-7B", work: Workload = WORK
) -> Problem:
    module = algorithms.load(algorithm)
    graph = module.graph(module.Hyper())
    shapes = {
        m.name: architecture.named("Qwen2.5-1.5B" if m.name == "critic" else actor) for m in graph.models
    }
    return Problem(graph, cluster, work, Facts(shapes, "bfloat16"), 16, Permissions())


PROBLEMS = {
    "node": problem(system("dgx-h100"), "ppo"),
    "mixed": problem(MIXED),
    "large": problem(system("dgx-h100", nodes=32), work=replace(WORK, prompts=512)),
}


@cache
def plans(name: str) -> dict[str, Plan]:
    """Plans that can be had, by name; of large clusters the first alone."""
    given, found = PROBLEMS[name], {}
    for construction in constructions(given):
        with suppress(InputError):
            found[construction.placement.name] = build(given, construction, sizes=Sizes(16, level=1))
        if name == "large":
            break
    return found


def _proven(plan: Plan, facts: Facts) -> None:
    trace = simulate(plan, StageCosts(plan, facts), 3)
    proof = prove(trace)
    assert proof.holds, proof.text()


@pytest.mark.parametrize("name", ["node", "mixed", "large"])
def test_a_plan_simulates_and_is_proven(name: str) -> None:
    plan = check(next(iter(plans(name).values())))
    assert plan_from_json(plan_to_json(plan)) == plan
    _proven(plan, PROBLEMS[name].facts)


def test_blocks_of_a_mixed_cluster_have_one_kind() -> None:
    names = {name.split(",")[0] for name in plans("mixed")}
    for plan in plans("mixed").values():
        for assignment in plan.assignments:
            if isinstance(assignment.block, Devices):
                assert len({MIXED.device(i).kind.name for i in assignment.block.ids}) == 1
    assert "colocated on h100-sxm" in names
    assert "generate on h100-sxm" in names


def test_plans_for_many_devices_stay_small() -> None:
    plan = next(iter(plans("large").values()))
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    assert len(plan.cluster) == 256
    assert len(lowered.lanes) <= 64
    assert len(lowered.tasks) <= 100


def test_large_models_are_cut_within_a_node_first() -> None:
    given = problem(system("dgx-h100", nodes=4), actor="Llama-3.1-70B")
    colocated = next(iter(constructions(given)))
    for a in unordered(given, colocated).assignments:
        if given.graph.stage(a.stage).kind is Kind.GENERATE:
            assert a.parallelism.tp > 1
        assert a.parallelism.pp == 1 or a.parallelism.tp == 8
        if given.graph.stage(a.stage).kind is Kind.TRAIN:
            assert a.parallelism.zero == 3 or a.parallelism.tp == 8


def test_models_that_share_devices_count_together() -> None:
    given = problem(system("dgx-h100"), "ppo")
    placed = list(constructions(given))
    plan = unordered(given, placed[0])
    together = device_memory(plan, lower(plan.graph, plan.assignments, plan.workload), given.facts)
    assert together[0].alike == 8
    assert any("at rest" in name for name, _ in together[0].peak.parts)
    assert any(memory.host for memory in together)


def test_what_nothing_holds_says_where() -> None:
    given = problem(system("dgx-h100", devices=1))
    with pytest.raises(InfeasibleError, match=r"lacks .* GiB in phase .* of "):
        plan_job(given)


def test_layouts_that_do_not_divide_name_the_nearest() -> None:
    given = problem(system("dgx-h100"))
    plan = unordered(given, next(iter(constructions(given))))
    wrong = tuple(
        replace(a, parallelism=Parallelism(dp=1, tp=8)) if given.graph.stage(a.stage).models else a
        for a in plan.assignments
    )
    # Qwen2.5-7B has 28 heads
    with pytest.raises(PlanError, match=r"28 .*heads.*4 or|28 .*tp = 8"):
        check_layouts(replace(plan, assignments=wrong), given.facts)
