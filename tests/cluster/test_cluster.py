import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cluster import (
    LEVELS,
    Cluster,
    Link,
    Node,
    Rack,
    device_kind,
    local,
    system,
)
from rpeg.errors import InputError

H100, A100 = device_kind("h100-sxm"), device_kind("a100-80gb-sxm")


def node(devices: int, kind=H100) -> Node:
    return Node(kind, devices, Link("node", 4e11, 1e-6), 10**12, 64)


@st.composite
def clusters(draw) -> Cluster:
    shape = draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=3))
    kinds = st.sampled_from([H100, A100])
    racks = tuple(
        Rack(tuple(node(n, draw(kinds)) for n in sizes), Link("rack", 5e10, 1e-5)) for sizes in shape
    )
    return Cluster("mixed", racks, Link("cluster", 2e10, 2e-5))


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_devices_are_numbered_in_order(cluster: Cluster) -> None:
    devices = [cluster.device(i) for i in range(len(cluster))]
    assert [d.index for d in devices] == list(range(sum(n.devices for n in cluster.nodes)))
    assert [d.node for d in devices] == [k for k, n in enumerate(cluster.nodes) for _ in range(n.devices)]
    assert [d.rack for d in devices] == sorted(d.rack for d in devices)
    assert all(d.kind == cluster.nodes[d.node].kind for d in devices)
    assert [i for k in range(len(cluster.nodes)) for i in cluster.devices_of(k)] == list(range(len(cluster)))


@settings(deadline=None, max_examples=40)
@given(clusters(), st.data())
def test_a_group_crosses_the_slowest_level_of_its_pairs(cluster: Cluster, data) -> None:
    group = data.draw(st.lists(st.integers(0, len(cluster) - 1), min_size=1, max_size=5))
    pairs = [cluster.level((a, b)) for a in group for b in group]
    assert cluster.level(group) == max(pairs, key=LEVELS.index)
    for a in group:
        for b in group:
            link = cluster.link_between(a, b)
            assert link == cluster.link_between(b, a)
            assert (link is None) == (a == b)
            if link is not None:
                same_node = cluster.node_of(a) == cluster.node_of(b)
                same_rack = cluster.rack_of(a) == cluster.rack_of(b)
                assert link.level == ("node" if same_node else "rack" if same_rack else "cluster")


@settings(deadline=None, max_examples=40)
@given(clusters())
def test_json_round_trip(cluster: Cluster) -> None:
    assert Cluster.from_json(json.loads(json.dumps(cluster.to_json()))) == cluster


def test_equal_nodes_are_written_once() -> None:
    large, small = system("dgx-h100", 256, nodes_per_rack=4), system("dgx-h100", 4)
    assert len(large) == 2048
    assert len(json.dumps(large.to_json())) < len(json.dumps(small.to_json())) + 20


def test_a_device_outside_is_refused() -> None:
    with pytest.raises(InputError, match=r"devices 0 … 7, there is no 8"):
        system("dgx-h100").device(8)
    with pytest.raises(InputError, match="there is no -1"):
        system("dgx-h100").node_of(-1)


def test_local_divides_the_memory_of_the_machine() -> None:
    cluster = local(2, memory_bytes=24 * 2**30)
    assert len(cluster) == 2
    assert cluster.device(1).kind.memory_bytes == 12 * 2**30
    assert cluster.nodes[0].host_memory_bytes == 24 * 2**30
    with pytest.raises(InputError, match="0 devices"):
        local(0, memory_bytes=1)


def test_price_is_known_when_every_node_has_one() -> None:
    cluster = system("alps", 3)
    assert cluster.price_per_hour is None
    assert system("dgx-h100", 3).price_per_hour == 3 * (system("dgx-h100").price_per_hour or 0) > 0
    priced = replace(cluster.nodes[0], price_per_hour=20.0)
    assert replace(cluster, racks=(Rack((priced,) * 3, cluster.racks[0].link),)).price_per_hour == 60.0


def test_names_are_checked() -> None:
    with pytest.raises(InputError, match="Did you mean 'h100-sxm'"):
        device_kind("h100-smx")
    with pytest.raises(InputError, match="Did you mean 'dgx-h100'"):
        system("dgx-h10")
    with pytest.raises(
        InputError, match=r"h100-sxm has no peak for dtype 'bfloat61'.*Did you mean 'bfloat16'"
    ):
        H100.peak("bfloat61")


def test_two_kinds_of_one_name_are_refused() -> None:
    other = replace(H100, memory_bytes=1)
    with pytest.raises(InputError, match="both named 'h100-sxm'"):
        Cluster("c", (Rack((node(1), node(1, other)), Link("rack", 1e9, 0)),), Link("cluster", 1e9, 0))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("racks", 0, "nodes", 0, "devices"), 0, "devices = 0"),
        (("racks", 0, "nodes", 0, "kind"), "h100-smx", "Did you mean 'h100-sxm'"),
        (("racks", 0, "nodes", 0, "device"), 4, "no field 'device'"),
        (("link", "bandwidth_bytes_per_second"), -1, "bandwidth_bytes_per_second = -1"),
        (("racks", 0, "count"), 10**30, "at most 1000000"),
        (("racks", 0, "nodes", 0, "count"), 10**30, "at most 1000000"),
        (("racks", 0, "nodes", 0, "devices"), 10**30, "at most 1000000"),
        (("racks", 0, "nodes", 0, "devices"), 10**6 + 1, "at most 1000000"),
        (("racks", 0, "count"), 1e30, r"count = 1e\+30"),
        (("link", "source"), None, "source = None, a text"),
        (("kinds", 0, "sources", "memory_bytes"), 7, "7 in sources, an object of texts"),
        (("racks",), [], "a list is needed"),
        (("kinds", 0, "peak_flops"), 3, "named fields"),
    ],
)
def test_broken_json_is_named(path: tuple, value: object, message: str) -> None:
    data = json.loads(json.dumps(system("dgx-h100").to_json()))
    target = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(InputError, match=message):
        Cluster.from_json(data)
