"""Lanes of bundles, and which lanes share samples."""

from __future__ import annotations

import pytest

from rpeg.architecture import Architecture
from rpeg.errors import PlanError
from rpeg.plan import Assignment, Devices, Host, Parallelism, check, plan_from_json, plan_to_json
from rpeg.plan.lanes import lanes_of
from rpeg.sim import StageCosts, simulate
from rpeg.sim.facts import Facts
from rpeg.verify import prove
from samples_of_plans import grpo, plan_of, ppo, workload

TINY = Architecture("tiny", "llama", 4, 64, 4, 4, 16, 128, 259, 128)
EIGHT = Devices(tuple(range(8)))


def _stage(name: str, bundles: int = 0, **degrees: int) -> Assignment:
    return Assignment(name, EIGHT, Parallelism(**degrees), bundles=bundles)


def test_every_device_is_a_lane_where_a_stage_has_no_bundles() -> None:
    lanes = lanes_of((_stage("a", dp=8), _stage("b", bundles=2, dp=8)))
    assert len(lanes.devices) == 8
    assert lanes.of(_stage("a", dp=8), 3) == ("device3",)


def test_devices_that_all_stages_bundle_alike_are_one_lane() -> None:
    a, b = _stage("a", bundles=2, dp=8), _stage("b", bundles=4, dp=4, tp=2)
    lanes = lanes_of((a, b))
    assert sorted(lanes.devices) == ["devices0-1", "devices2-3", "devices4-5", "devices6-7"]
    assert lanes.of(a, 1) == ("devices4-5", "devices6-7")
    assert lanes.of(b) == lanes.of(a)


def test_a_pipelined_replica_has_a_share_of_every_stage() -> None:
    assert _stage("a", dp=2, tp=2, pp=2).devices_of(1) == (2, 3, 6, 7)


def test_lanes_of_a_replica_are_one_cell() -> None:
    a = _stage("a", dp=2, tp=2, pp=2)
    lanes = lanes_of((a,))
    cells = lanes.cells(a, lanes.of(a))
    assert [cell.replicas for cell in cells] == [(0,), (1,)]
    assert cells[1].lanes == ("device2", "device3", "device6", "device7")


def test_bundles_that_are_not_equal_are_refused() -> None:
    graph = grpo()
    plan = plan_of(
        graph, _assigned(graph, bundles=0), workload(prompts=8, longest=16, minibatches=2), devices=8
    )
    with pytest.raises(PlanError, match=r"dp 4 in 3 bundles, which are not equal; 2 or 4 would be"):
        check(plan_of(graph, _assigned(graph, bundles=3), plan.workload, devices=8))


@pytest.mark.parametrize("bundles", [0, 1, 2])
@pytest.mark.parametrize("degrees", [{"dp": 4, "tp": 2}, {"dp": 2, "tp": 2, "pp": 2}])
def test_simulated_replicas_of_several_devices_are_proven(bundles: int, degrees: dict[str, int]) -> None:
    graph = ppo()
    assigned = _assigned(graph, bundles=bundles, **degrees)
    plan = plan_of(graph, assigned, workload(prompts=8, longest=16, minibatches=2), devices=8)
    facts = Facts({model.name: TINY for model in graph.models})
    trace = simulate(plan, StageCosts(plan, facts), 3)
    proof = prove(trace)
    assert proof.holds, proof.text()
    lanes = 8 if bundles == 0 else bundles
    assert len({span.lane for span in trace.spans if span.lane.startswith("device")}) == lanes
    assert plan_from_json(plan_to_json(plan)) == plan


def test_ranks_of_a_replica_that_tell_different_samples_are_no_proof() -> None:
    from dataclasses import replace

    graph = grpo()
    plan = plan_of(graph, _assigned(graph), workload(prompts=8, longest=16, minibatches=2), devices=8)
    trace = simulate(plan, StageCosts(plan, Facts({m.name: TINY for m in graph.models})), 3)
    spans = list(trace.spans)
    at = next(i for i, s in enumerate(spans) if s.item.name.startswith("train") and s.lane == "device1")
    spans[at] = replace(spans[at], ids=(*spans[at].ids[:-1], spans[at].ids[0]))
    assert not prove(replace(trace, spans=tuple(spans))).holds


def _assigned(graph, bundles: int = 0, dp: int = 4, tp: int = 2, pp: int = 1):  # type: ignore[no-untyped-def]
    return tuple(
        Assignment(s.name, Host())
        if not s.models
        else Assignment(s.name, EIGHT, Parallelism(dp=dp, tp=tp, pp=pp), bundles=bundles)
        for s in graph.stages
    )
