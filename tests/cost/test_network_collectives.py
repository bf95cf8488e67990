"""Collectives: laws that hold for any fabric, and what moves over each level."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.cluster import DeviceKind, Fabric, Link, device_kind
from rpeg.cost import Machine, Stack
from rpeg.cost.network import collective, collective_seconds, exchange_seconds, moved_bytes

KIND = DeviceKind("test", 80 * 10**9, 3e12, (("bfloat16", 1e15),), 5e10)
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")


def machine(inner: float = 4e11, outer: float = 5e10, width: int = 8) -> Machine:
    node, rack = Link("node", inner, 3e-6), Link("rack", outer, 1e-5)
    return Machine(KIND, Fabric(((node, width), (rack, 65536))), Stack("test"))


kinds = st.sampled_from(KINDS)
sizes = st.floats(1.0, 1e11)
ranks = st.integers(2, 2048)


@given(kinds, sizes, ranks, st.sampled_from([1, 2, 8]), st.floats(1.0, 4.0))
def test_more_bytes_never_take_less_time(kind, size, count, stride, factor):
    at = machine()
    less = collective_seconds(kind, size, count, at, stride=stride)
    assert collective_seconds(kind, size * factor, count, at, stride=stride) >= less > 0


@given(kinds, sizes, ranks, st.booleans())
def test_doubling_a_bandwidth_never_hurts(kind, size, count, inner):
    faster = machine(inner=8e11) if inner else machine(outer=1e11)
    assert collective_seconds(kind, size, count, faster) <= collective_seconds(kind, size, count, machine())


@given(kinds, sizes, ranks)
def test_sharing_links_never_helps(kind, size, count):
    at = machine()
    assert collective_seconds(kind, size, count, at, sharing=2) >= collective_seconds(kind, size, count, at)


@given(sizes, st.sampled_from([2, 4, 8, 16, 64, 512]))
def test_each_rank_receives_what_it_lacks(size, count):
    moved = sum(part for _, part in moved_bytes("all_gather", size, count, machine()))
    assert moved == pytest.approx(size * (count - 1) / count)
    assert sum(p for _, p in moved_bytes("all_to_all", size, count, machine())) == pytest.approx(moved)
    assert sum(p for _, p in moved_bytes("all_reduce", size, count, machine())) == pytest.approx(2 * moved)


def test_one_rank_and_no_bytes_take_no_time():
    for kind in KINDS:
        assert collective_seconds(kind, 1e9, 1, machine()) == 0.0
        assert collective_seconds(kind, 0.0, 8, machine()) == 0.0


def test_large_all_reduce_in_a_node_is_bound_by_its_link():
    seconds = collective_seconds("all_reduce", 1e9, 8, machine())
    assert seconds == pytest.approx(2 * 7 / 8 * 1e9 / (4e11 * 0.72), rel=0.02)


def test_small_messages_are_bound_by_latency_and_trees_keep_it_low():
    small = collective_seconds("all_reduce", 1e3, 2048, machine())
    assert small == pytest.approx(collective_seconds("all_reduce", 1e4, 2048, machine()), rel=0.1)
    assert small < 2 * 2047 * 1e-5 * 0.18  # a ring over single devices


def test_members_of_a_node_use_a_network_link_each():
    spread = collective_seconds("all_gather", 1e9, 2, machine(), stride=8)
    packed = collective_seconds("all_gather", 1e9, 16, machine())
    assert packed < spread / 3


def test_a_cost_shows_bytes_of_each_level_and_takes_as_long():
    cost = collective("gradients", "all_reduce", 1e9, 64, machine())
    assert [leaf.name for leaf in cost.children] == ["node", "rack"]
    assert cost.seconds == collective_seconds("all_reduce", 1e9, 64, machine())
    assert cost.bytes == pytest.approx(2 * 63 / 64 * 1e9)


@given(sizes, st.sampled_from([8, 64, 256]), st.floats(1.0, 3.0))
def test_imbalance_costs_and_node_limited_routing_saves(size, count, imbalance):
    at = machine()
    plain = exchange_seconds(size, count, at, copies=8)
    assert exchange_seconds(size, count, at, copies=8, imbalance=imbalance) >= plain
    assert exchange_seconds(size, count, at, copies=8, nodes_per_token=4) <= plain
    assert plain == collective_seconds("all_to_all", size, count, at)


def test_a_wider_node_keeps_traffic_on_the_fast_link():
    wide = machine(width=72)
    assert [name for name, _ in moved_bytes("all_to_all", 1e9, 64, wide)] == ["node"]
    assert collective_seconds("all_to_all", 1e9, 64, wide) < collective_seconds(
        "all_to_all", 1e9, 64, machine()
    )


def test_efficiency_is_the_stacks():
    at = machine()
    slower = replace(at, stack=replace(at.stack, network=replace(at.stack.network, efficiency=0.36)))
    ratio = collective_seconds("all_gather", 1e10, 8, slower) / collective_seconds("all_gather", 1e10, 8, at)
    assert ratio == pytest.approx(2.0, rel=0.01)


def real_machine(kind: str, bandwidth: float, stack: str = "test") -> Machine:
    node, rack = Link("node", bandwidth, 3e-6), Link("rack", 5e10, 1e-5)
    return Machine(device_kind(kind), Fabric(((node, 8), (rack, 65536))), Stack(stack))


def test_measured_collectives_are_taken_where_there_are_some():
    """NCCL 2.29.2 on H100, all_gather over 8 devices: 536870912 bytes in 1401.5 µs (aiconfigurator-core 0.12.0)."""
    seconds = collective_seconds("all_gather", 512 * 2**20, 8, real_machine("h100-sxm", 4.5e11))
    assert seconds == pytest.approx(1401.5e-6, rel=0.05)


def test_an_engines_own_all_reduce_is_taken_for_small_messages():
    trained = collective_seconds("all_reduce", 1e5, 8, real_machine("h100-sxm", 4.5e11, "megatron"))
    served = collective_seconds("all_reduce", 1e5, 8, real_machine("h100-sxm", 4.5e11, "vllm"))
    assert served < 0.6 * trained


def test_a_narrower_link_slows_what_was_measured_on_a_wider_one():
    """A800: the A100's chip with two thirds of its NVLink."""
    wide = collective_seconds("all_gather", 1e9, 8, real_machine("a100-80gb-sxm", 3e11))
    narrow = collective_seconds("all_gather", 1e9, 8, real_machine("a800-80gb-sxm", 2e11))
    assert narrow == pytest.approx(1.5 * wide, rel=0.02)


@given(
    st.sampled_from(KINDS),
    sizes,
    st.integers(2, 72),
    st.floats(1.0, 4.0),
    st.sampled_from(["b200", "a100-80gb-sxm"]),
)
def test_laws_hold_for_measured_collectives(kind, size, count, factor, device):
    at, faster = real_machine(device, 3e11), real_machine(device, 6e11)
    less = collective_seconds(kind, size, count, at)
    assert collective_seconds(kind, size * factor, count, at) >= less * (1 - 1e-12)
    assert collective_seconds(kind, size, count, faster) <= less * (1 + 1e-12)


def test_more_ranks_than_were_measured_are_continued():
    wide = Machine(device_kind("gb200"), Fabric(((Link("node", 9e11, 3e-6), 72),)), Stack("test"))
    times = [collective_seconds("all_reduce", 1e8, n, wide) for n in (4, 8, 32, 72)]
    assert times == sorted(times)
    assert times[-1] < 2 * times[0]


def test_an_own_all_reduce_of_one_node_ends_with_the_node():
    def times(ranks: int) -> tuple[float, float]:
        engine, plain = (real_machine("gb200", 9e11, name) for name in ("vllm", "test"))
        return tuple(collective_seconds("all_reduce", 65536, ranks, m) for m in (engine, plain))  # type: ignore[return-value]

    assert times(4)[0] < times(4)[1]
    assert times(8)[0] == times(8)[1]
