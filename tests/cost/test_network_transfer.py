"""Weight transfers: what must move between layouts, and what never does."""

from __future__ import annotations

import importlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.architecture import Architecture, Experts, Layer
from rpeg.cluster import DeviceKind, Fabric, Link
from rpeg.cost import Machine, Stack
from rpeg.cost.network import Held, Tensors, named_tensors, offload, sync, transfer, transient_bytes
from rpeg.errors import InputError
from rpeg.plan import Parallelism

KIND = DeviceKind("test", 80 * 10**9, 3e12, (("bfloat16", 1e15),), 5e10)
DENSE = Architecture("dense", "llama", 16, 1024, 16, 8, 64, 4096, 32000, 4096)
MIXTURE = replace(
    DENSE,
    name="mixture",
    experts=Experts(count=16, active=2, ffn=512, shared_ffn=512),
    pattern=(Layer("full", "dense"),) + (Layer("full", "moe"),) * 15,
)
STRATEGIES = ("p2p", "broadcast", "ipc", "staged")


def fabric(inner: float = 4e11, outer: float = 5e10) -> Fabric:
    return Fabric(((Link("node", inner, 3e-6), 8), (Link("rack", outer, 1e-5), 65536)))


def machine(inner: float = 4e11, outer: float = 5e10) -> Machine:
    return Machine(KIND, fabric(inner, outer), Stack("test"))


@st.composite
def layouts(draw: st.DrawFn) -> Parallelism:
    tp, pp, dp = (draw(st.sampled_from([1, 2, 4])) for _ in range(3))
    zero = draw(st.sampled_from([0, 3]))
    ep = draw(st.sampled_from([n for n in (1, 2, 4, 8) if tp * dp % n == 0]))
    return Parallelism(dp=dp, tp=tp, pp=pp, ep=ep, zero=zero)


architectures = st.sampled_from([DENSE, MIXTURE])


@given(architectures, layouts(), st.sampled_from([0, 8]))
def test_a_layout_equal_to_itself_moves_nothing(architecture, layout, first):
    held = Held(layout, first)
    plan = transfer(architecture, held, held, fabric())
    assert plan.nothing
    assert plan.moved_bytes == pytest.approx(0.0, abs=1e-6 * plan.model_bytes)
    assert all(sync(plan, machine(), strategy).seconds == 0.0 for strategy in STRATEGIES)
    assert transient_bytes(plan, "broadcast") == 0.0


@given(architectures, layouts(), layouts(), st.sampled_from([0, 4, 8, 64]))
@settings(deadline=None)
def test_what_moves_is_what_is_missing(architecture, a, b, first):
    plan = transfer(architecture, Held(a), Held(b, first), fabric())
    assert plan.moved_bytes >= plan.missing_bytes * (1 - 1e-9)
    assert plan.local_bytes + plan.node_bytes + plan.fabric_bytes == pytest.approx(plan.needed_bytes)
    assert plan.needed_bytes >= plan.model_bytes * (1 - 1e-9)
    assert min(plan.local_bytes, plan.node_bytes, plan.fabric_bytes) >= -1e-6 * plan.needed_bytes
    if first >= a.devices:
        assert plan.local_bytes == 0.0


@given(architectures, layouts())
def test_shards_of_one_replica_sum_to_the_model(architecture, layout):
    """Apart from norms and routers, which tensor parallelism leaves whole."""
    one = replace(layout, tp=1, zero=0, ep=1, dp=1)
    plan = transfer(architecture, Held(layout), Held(one, 64), fabric())
    assert plan.needed_bytes == pytest.approx(2.0 * architecture.parameters())


@given(architectures, layouts(), layouts(), st.sampled_from(STRATEGIES), st.booleans())
@settings(deadline=None)
def test_doubling_a_bandwidth_never_hurts(architecture, a, b, strategy, inner):
    plan = transfer(architecture, Held(a), Held(b, 16), fabric())
    faster = machine(inner=8e11) if inner else machine(outer=1e11)
    assert sync(plan, faster, strategy).seconds <= sync(plan, machine(), strategy).seconds


def test_disjoint_blocks_miss_everything_and_share_the_sending():
    a, b = Parallelism(tp=8), Parallelism(tp=8, dp=2)
    plan = transfer(DENSE, Held(a), Held(b, 8), fabric())
    assert plan.fabric_bytes == plan.needed_bytes == plan.missing_bytes
    assert plan.send_fabric_bytes == pytest.approx(2 * plan.receive_fabric_bytes)


def test_a_node_that_holds_all_serves_itself():
    plan = transfer(DENSE, Held(Parallelism(dp=8, zero=3)), Held(Parallelism(tp=2, dp=4)), fabric())
    assert plan.fabric_bytes == pytest.approx(0.0, abs=1.0)
    assert 0 < plan.local_bytes < plan.node_bytes


def test_another_dtype_is_rewritten_though_nothing_moves():
    held = Held(Parallelism(tp=2))
    plan = transfer(DENSE, held, replace(held, dtype="float8"), fabric())
    assert plan.convert
    assert plan.moved_bytes == pytest.approx(0.0, abs=1e-6 * plan.model_bytes)
    assert sync(plan, machine()).seconds > 0.0


def test_experts_that_stay_are_not_moved():
    trained = Held(Parallelism(dp=8, ep=8))
    served = Held(Parallelism(tp=8, ep=8))
    assert transfer(MIXTURE, trained, served, fabric()).moved_bytes == pytest.approx(0.0, abs=1.0)
    assert transfer(MIXTURE, trained, Held(Parallelism(tp=8)), fabric()).node_bytes > 0.0


def test_gathering_whole_tensors_is_never_faster_than_planned_shards():
    plan = transfer(DENSE, Held(Parallelism(tp=8)), Held(Parallelism(tp=8), 8), fabric())
    assert sync(plan, machine(), "broadcast").seconds > sync(plan, machine(), "p2p").seconds


def test_buffers_hold_two_buckets():
    plan = transfer(DENSE, Held(Parallelism(tp=8)), Held(Parallelism(tp=8), 8), fabric())
    assert transient_bytes(plan, "broadcast", 1e8) == 2e8
    assert transient_bytes(plan, "p2p", 1e12) == pytest.approx(2 * plan.receive_fabric_bytes)


def test_named_tensors_count_each_expert():
    assert named_tensors(DENSE).count == 3 + 16 * 9
    assert named_tensors(MIXTURE) == Tensors(3 + 9 + 15 * (6 + 1 + 3), 15 * 3 * 16, 16)
    assert named_tensors(DENSE, scaled=True).count == 3 + 16 * (2 * 7 + 2)


def test_one_gathering_brings_an_expert_of_each_rank():
    served = Held(Parallelism(tp=8), 8)
    spread = transfer(MIXTURE, Held(Parallelism(dp=8, ep=8)), served, fabric())
    whole = transfer(MIXTURE, Held(Parallelism(tp=8)), served, fabric())
    count = [
        sync(p, machine(), "broadcast", tensors=named_tensors(MIXTURE)).find("gather").count
        for p in (spread, whole)
    ]
    assert count == [162 + 90, 162 + 720]


def test_more_stages_than_layers_are_refused():
    with pytest.raises(InputError, match=r"16 layers.*32 pipeline stages"):
        transfer(DENSE, Held(Parallelism(pp=32)), Held(Parallelism()), fabric())


def test_offload_follows_the_host_link():
    assert offload(4.25e10, machine()).seconds == pytest.approx(1.0)


@pytest.mark.parametrize("first", [0, 3, 8, 60])
def test_both_ways_of_looking_into_a_node_agree(monkeypatch, first):
    module = importlib.import_module("rpeg.cost.network.transfer")
    held, wanted = Held(Parallelism(dp=32, tp=2, ep=8, zero=3)), Held(Parallelism(tp=4, dp=16), first)
    plans = []
    for many in (0, 10**9):
        monkeypatch.setattr(module, "_MANY_PIECES", many)
        plans.append(module.transfer.__wrapped__(MIXTURE, held, wanted, fabric()))
    assert plans[0].node_bytes == pytest.approx(plans[1].node_bytes)
    assert plans[0].fabric_bytes == pytest.approx(plans[1].fabric_bytes)


def test_overlapping_never_hurts_and_tensors_one_by_one_cost_the_engine():
    plan = transfer(DENSE, Held(Parallelism(dp=8, zero=3)), Held(Parallelism(tp=8), 8), fabric())
    tensors = named_tensors(DENSE)
    plain = sync(plan, machine(), "broadcast", tensors=tensors)
    beside = sync(plan, machine(), "broadcast", tensors=tensors, overlapped=True)
    each = sync(plan, machine(), "broadcast", tensors=tensors, one_by_one=True)
    assert beside.seconds <= plain.seconds
    load = each.find("load")
    assert load is not None
    assert load.seconds > plain.find("load").seconds  # type: ignore[union-attr]
