from itertools import accumulate
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.cluster import Cluster, Fabric, Link, fabric, system
from rpeg.errors import InputError

SPEEDS = (4e11, 5e10, 2e10)


@st.composite
def fabrics(draw) -> Fabric:
    sizes = list(
        accumulate(draw(st.lists(st.sampled_from((2, 3, 4, 8, 9)), min_size=1, max_size=3)), int.__mul__)
    )
    links = [
        Link(level, speed, 1e-6) for level, speed in zip(("node", "rack", "cluster"), SPEEDS, strict=True)
    ]
    return Fabric(tuple(zip(links, sizes, strict=False)))


SIZES, STRIDES = st.integers(1, 600), st.integers(1, 300)


@given(fabrics(), SIZES, STRIDES)
def test_hops_join_all_ranks(joined: Fabric, size: int, stride: int) -> None:
    hops = joined.hops(size, stride)
    assert prod(hop.fanout for hop in hops) >= size
    assert all(hop.fanout > 1 for hop in hops)
    speeds = [hop.link.bandwidth_bytes_per_second for hop in hops]
    assert speeds == sorted(speeds, reverse=True)
    assert (hops == ()) == (size == 1)


@given(fabrics(), st.integers(0, 4), st.integers(0, 4))
def test_hops_are_exact_where_ranks_fill_their_units(joined: Fabric, i: int, j: int) -> None:
    sizes = [size for _, size in joined.levels]
    stride = [1, *sizes][min(i, len(sizes))]
    size = max(1, sizes[min(j, len(sizes) - 1)] // stride)
    assert prod(hop.fanout for hop in joined.hops(size, stride)) == size


@given(fabrics(), SIZES, STRIDES, STRIDES)
def test_ranks_further_apart_are_not_joined_faster(joined: Fabric, size: int, a: int, b: int) -> None:
    def slowness(stride: int) -> float:
        link = joined.slowest(size, stride)
        return 0.0 if link is None else -link.bandwidth_bytes_per_second

    assert slowness(max(a, b)) >= slowness(min(a, b))


@given(fabrics(), SIZES, SIZES, STRIDES)
def test_more_ranks_are_not_joined_faster(joined: Fabric, a: int, b: int, stride: int) -> None:
    small, large = (joined.slowest(size, stride) for size in sorted((a, b)))
    assert small is None or (
        large is not None and large.bandwidth_bytes_per_second <= small.bandwidth_bytes_per_second
    )


def test_a_group_over_nodes() -> None:
    joined = fabric(system("dgx-h100", 16, nodes_per_rack=4))
    assert [(hop.link.level, hop.fanout) for hop in joined.hops(16, 4)] == [("node", 2), ("rack", 8)]
    assert [hop.link.level for hop in joined.hops(4, 8)] == ["rack"]
    assert joined.devices_per_node == joined.devices_per_host == 8


def test_equally_fast_levels_are_one() -> None:
    assert len(fabric(system("dgx-h100", 16, nodes_per_rack=4)).levels) == 2
    assert len(fabric(system("gb300-nvl72", 18)).levels) == 1


def test_nonsense_is_refused() -> None:
    link = Link("node", 1e9, 0.0)
    with pytest.raises(InputError, match=r"levels of \[8, 4\] devices"):
        Fabric(((link, 8), (link, 4)))
    with pytest.raises(InputError, match="0 ranks at distance 1"):
        Fabric(((link, 8),)).hops(0)


def test_a_transport_survives_systems_and_json() -> None:
    cluster = system("aws-p5", 2)
    assert cluster.racks[0].link.transport == "efa"
    assert system("dgx-h100", 2).racks[0].link.transport == ""
    assert Cluster.from_json(cluster.to_json()).racks[0].link == cluster.racks[0].link
