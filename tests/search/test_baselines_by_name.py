"""Baselines by name: which there are, that they can be run, what they need, and that more freedom is never slower."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from problems import problem as local_problem

from rpeg import algorithms, architecture
from rpeg.cluster import Cluster, system
from rpeg.ir import Kind
from rpeg.plan import Devices, check
from rpeg.search import Baseline, Permissions, Problem, plan_job
from rpeg.search.baselines import FAMILIES, baselines, families
from rpeg.search.estimator import Estimator
from rpeg.sim import Facts
from rpeg.workload import Workload, constant, lognormal

NAMES = [
    "colocated, one layout",
    "colocated, a layout per stage",
    "actor/rollout split",
    "ReaL heuristic",
    "model meshes",
    "verl sync",
    "verl colocate-async",
    "verl separate-async",
    "verl one-step-off",
    "verl fully-async",
]
ASYNCHRONOUS = NAMES[6:]
H100, A100 = (system(name, devices=2) for name in ("dgx-h100", "dgx-a100"))
MIXED = Cluster("mixed", (*H100.racks, *A100.racks), H100.link)


def described(cluster: Cluster, permissions: Permissions, algorithm: str = "ppo") -> Problem:
    module = algorithms.load(algorithm)
    graph = module.graph(module.Hyper())
    shape = architecture.named("Qwen2.5-1.5B")
    work = Workload(8, 2, constant(200), lognormal(300, 1000), minibatches=2)
    facts = Facts({model.name: shape for model in graph.models}, "bfloat16")
    return Problem(graph, cluster, work, facts, 16, permissions)


CASES = {
    "one node": described(system("dgx-h100", devices=4), Permissions(staleness=1)),
    "two nodes": described(system("dgx-a100", nodes=2, devices=2), Permissions(), "grpo"),
    "mixed": described(MIXED, Permissions(staleness=1), "grpo"),
    "this machine": local_problem(devices=2, permissions=Permissions(staleness=1)),
}


@cache
def found(case: str) -> dict[str, Baseline]:
    return {b.name: b for b in baselines(Estimator(CASES[case]))}


def seconds(baseline: Baseline) -> float:
    assert baseline.candidate is not None, baseline.reason
    return baseline.candidate.estimate.step.mean_seconds


@pytest.mark.parametrize("case", CASES)
def test_all_are_there_and_can_be_run_or_say_why_not(case) -> None:
    assert [family.name for family in families(CASES[case])] == NAMES == list(found(case))
    assert len(FAMILIES) == len(NAMES)
    for baseline in found(case).values():
        assert (baseline.candidate is None) == bool(baseline.reason)
        if baseline.candidate is not None:
            check(baseline.candidate.plan)
            assert baseline.candidate.estimate.fits


@pytest.mark.parametrize("case", CASES)
def test_more_freedom_of_layouts_is_never_slower(case) -> None:
    one, each, sync = (seconds(found(case)[name]) for name in (*NAMES[:2], "verl sync"))
    assert each <= sync <= one


def test_asynchronous_ones_need_permission_and_say_so() -> None:
    for name in ASYNCHRONOUS:
        refused = found("two nodes")[name]
        assert refused.candidate is None
        assert "the job allows 0 (allow: {staleness: 1})" in refused.reason
        allowed = found("one node")[name].candidate
        assert allowed is not None
        assert any(text.startswith("async{") for text in allowed.changes)


def test_a_job_that_wants_more_staleness_leaves_out_what_has_less() -> None:
    wants = Permissions(staleness=2, wished_staleness=2)
    reasons = {f.name: f.refused for f in families(replace(CASES["one node"], permissions=wants))}
    assert "the job wants 2" in reasons["verl one-step-off"]
    assert reasons["verl fully-async"] == ""


def test_one_layout_is_one() -> None:
    candidate = found("one node")["colocated, one layout"].candidate
    assert candidate is not None
    own = [a for a in candidate.plan.assignments if isinstance(a.block, Devices)]
    assert len({(a.parallelism.dp, a.parallelism.tp, a.parallelism.pp) for a in own}) == 1
    assert {len(a.block.ids) for a in own} == {4}


def test_the_heuristic_cuts_layers_over_nodes_and_products_within() -> None:
    candidate = found("two nodes")["ReaL heuristic"].candidate
    assert candidate is not None
    degrees = {
        (a.parallelism.dp, a.parallelism.tp, a.parallelism.pp)
        for a in candidate.plan.assignments
        if isinstance(a.block, Devices)
    }
    assert degrees == {(1, 2, 2)}


def test_pools_of_verl_hold_generation_alone() -> None:
    for name in ("verl separate-async", "verl one-step-off", "verl fully-async"):
        candidate = found("mixed")[name].candidate
        assert candidate is not None
        plan, sides = candidate.plan, {True: set[int](), False: set[int]()}
        for a in plan.assignments:
            if isinstance(a.block, Devices):
                sides[plan.graph.stage(a.stage).kind is Kind.GENERATE] |= set(a.block.ids)
        assert sides[True].isdisjoint(sides[False])


@pytest.mark.parametrize("permissions", [Permissions(), Permissions(staleness=1)])
def test_the_best_plan_is_no_slower_than_a_baseline_that_the_job_allows(permissions) -> None:
    ranked = plan_job(described(H100, permissions, "grpo"))
    finals = min(c.estimate.step.mean_seconds for c in ranked.candidates[:2])
    for baseline in ranked.baselines:
        if baseline.candidate is not None:
            assert finals <= seconds(baseline)
