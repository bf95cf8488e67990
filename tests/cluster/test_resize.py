"""Clusters of another size keep their nodes, racks, links and prices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.cluster import (
    Cluster,
    node_devices,
    resized,
    slowest_link,
    system,
    with_faster_links,
    with_nodes,
)
from rpeg.errors import InputError

NAMES = ("dgx-h100", "gb200-nvl72", "dgx-a100")


@given(st.sampled_from(NAMES), st.integers(1, 60), st.integers(1, 60))
def test_a_bundled_system_of_another_size_is_that_system(name: str, before: int, after: int) -> None:
    found = with_nodes(system(name, before), after)
    assert found == system(name, after)
    assert resized(system(name, before), len(found)) == found


@given(st.sampled_from(NAMES), st.integers(1, 8), st.integers(1, 4))
def test_a_part_of_a_node_grows_to_the_whole(name: str, devices: int, after: int) -> None:
    whole = node_devices(system(name))
    part = resized(system(name, 3), min(devices, whole))
    assert part == system(name, devices=min(devices, whole))
    assert node_devices(part) == whole
    assert resized(part, after * whole) == system(name, after)


def test_parts_of_nodes_priced_by_device_cost_what_their_devices_do() -> None:
    base = system("dgx-h100")
    node = replace(base.racks[0].nodes[0], price_per_hour=16.0)
    own = replace(base, racks=(replace(base.racks[0], nodes=(node,)),))
    assert resized(own, 2).price_per_hour == 4.0
    assert resized(resized(own, 2), 24).price_per_hour == 48.0
    assert resized(base, 2).price_per_hour == base.price_per_hour


def test_own_racks_stay_as_wide_as_they_are() -> None:
    own = replace(system("dgx-h100", 4, nodes_per_rack=2), name="ours")
    assert [len(rack.nodes) for rack in with_nodes(own, 7).racks] == [2, 2, 2, 1]
    assert [len(rack.nodes) for rack in with_nodes(own, 3).racks] == [2, 1]


def test_sizes_that_do_not_fill_nodes_name_the_nearest() -> None:
    with pytest.raises(InputError, match="Nearest: 8 or 16"):
        resized(system("dgx-h100"), 12)
    with pytest.raises(InputError, match="at least 1"):
        resized(system("dgx-h100"), 0)
    with pytest.raises(InputError, match="at least 1"):
        with_nodes(system("dgx-h100"), 0)


def test_of_a_mixed_cluster_the_last_nodes_change() -> None:
    first, second = system("dgx-h100", 2), system("dgx-a100", 2)
    mixed = Cluster("both", (*first.racks, *second.racks), second.link)
    grown = resized(mixed, 40)
    assert [node.kind.name for node in grown.nodes].count("a100-80gb-sxm") == 3
    assert grown.name == "both with 5 nodes"
    assert len(resized(grown, 24)) == 24
    with pytest.raises(InputError, match="last nodes, of 8 a100-80gb-sxm"):
        resized(mixed, 16)


@pytest.mark.parametrize(("nodes", "level"), [(1, "node"), (4, "rack")])
def test_the_slowest_link_in_use_gets_faster(nodes: int, level: str) -> None:
    cluster = system("dgx-h100", nodes)
    faster = with_faster_links(cluster, 2)
    before, after = slowest_link(cluster), slowest_link(faster)
    assert before.level == level
    assert after.bandwidth_bytes_per_second == 2 * before.bandwidth_bytes_per_second
    other = [node.link for node in cluster.nodes] if level == "rack" else [cluster.link]
    kept = [node.link for node in faster.nodes] if level == "rack" else [faster.link]
    assert kept == other
