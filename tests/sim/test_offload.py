"""Offload on described hardware: what it frees, what it costs, and that both follow the order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.architecture import Architecture
from rpeg.cluster import Cluster, system
from rpeg.plan import ItemKind, Lane, Parallelism, Plan, Turn, check, lower
from rpeg.sim import Draws, Facts, Memo, StageCosts, device_memory, estimate, ordered, simulate, stage_trees
from rpeg.verify import prove
from samples_of_plans import assign, cluster, ppo, workload

BILLION = Architecture("1B", "llama", 16, 2048, 32, 8, 64, 8192, 32000, 4096)
FACTS = Facts(dict.fromkeys(("actor", "critic", "reference"), BILLION), dtype="bfloat16")
ALL = {"generate": "all", "reference": "all", "train_actor": "all", "train_critic": "all"}


def _plan(where: Cluster | None = None, **offload: str) -> Plan:
    graph, where = ppo(), where or system("dgx-h100", devices=2)
    assignments = tuple(
        replace(a, offload=offload.get(a.stage, "none"), parallelism=_layout(a.stage, a.parallelism))
        for a in assign(graph, (0, 1))
    )
    bare = Plan(graph, where, workload(longest=64, minibatches=2), assignments)
    return check(ordered(bare, {}, StageCosts(bare, FACTS)))


def _layout(stage: str, own: Parallelism) -> Parallelism:
    """The actor's trainer shards its state; others, engines among them, hold whole models: copies of their own."""
    return replace(own, zero=1) if stage.startswith("train") else own


def _peak(plan: Plan) -> float:
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    return max(m.peak.bytes for m in device_memory(plan, lowered, FACTS) if not m.host)


def test_what_rests_on_the_host_frees_the_device() -> None:
    peaks = [_peak(_plan(**offload)) for offload in ({}, {"reference": "all"}, ALL)]
    assert peaks == sorted(peaks, reverse=True)
    weights = 2 * BILLION.parameters()
    assert peaks[0] - peaks[1] == pytest.approx(weights, rel=0.05)


def test_the_order_says_what_is_there_together() -> None:
    """A reference that is brought before all else and goes at the end is there beside training."""
    tight = _plan(reference="all")
    slots = {"reload": ItemKind.RELOAD, "offload": ItemKind.OFFLOAD}

    def widened(lane: Lane) -> Lane:
        own = {name: [t for t in lane.turns if t.slot.kind is kind] for name, kind in slots.items()}
        others = [t for t in lane.turns if t.slot.kind not in slots.values()]
        turns: list[Turn] = [*own["reload"], *others, *own["offload"]]
        return replace(lane, turns=tuple(turns))

    wide = check(replace(tight, order=tuple(map(widened, tight.order))))
    assert _peak(wide) == pytest.approx(_peak(_plan()), rel=1e-3)
    assert _peak(tight) < _peak(wide)


def test_moving_takes_the_time_of_its_bytes_over_the_host_link() -> None:
    plan = _plan(reference="all")
    trees = stage_trees(plan, StageCosts(plan, FACTS), Draws(plan.workload, 0))
    reload, offload = trees["reload reference:model"], trees["offload reference:model"]
    weights = 2 * BILLION.parameters()
    link = plan.cluster.device(0).kind.host_bandwidth_bytes_per_second
    assert weights / link <= reload.seconds <= 2 * weights / link
    assert offload.seconds == 0  # frozen weights are dropped


def test_offload_costs_time_and_its_run_is_proven() -> None:
    memo: Memo = {}
    stays, goes = _plan(), _plan(**ALL)
    assert estimate(goes, FACTS, steps=2, memo=memo).step.mean_seconds > (
        estimate(stays, FACTS, steps=2, memo=memo).step.mean_seconds
    )
    trace = simulate(goes, StageCosts(goes, FACTS), 3)
    assert prove(trace).findings == ()
    assert {span.item.kind for span in trace.spans} >= {ItemKind.RELOAD, ItemKind.OFFLOAD}


def test_processes_of_this_machine_are_costed_too() -> None:
    plan = _plan(cluster(2), **ALL)
    trees = stage_trees(plan, StageCosts(plan, replace(FACTS, dtype="float32")), Draws(plan.workload, 0))
    brought = trees["reload train_actor:model"]
    weights_and_moments = 3 * 4 * BILLION.parameters()  # gradients are dropped
    assert brought.bytes == pytest.approx(weights_and_moments, rel=1e-3)
    assert trees["offload reference:model"].bytes == 0
