"""Nodes of a plan on nodes of a Ray cluster: racks together, the smallest that fits, and what is said where none does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans import grpo_graph, make_plan
from rpeg.cluster import Cluster, Rack, local
from rpeg.errors import InputError
from rpeg.plan import Plan
from rpeg.runtime.placement import Host, Need, needs, place
from rpeg.runtime.ray_cluster import ray_cluster
from rpeg.runtime.visit import check_alike, look


def racks(*sizes: int) -> Cluster:
    """Racks of so many nodes, each of two processes of a CPU."""
    one = local(2, 2**31)
    node, link = one.nodes[0], one.racks[0].link
    return Cluster("racks", tuple(Rack((node,) * size, link) for size in sizes), one.link)


def plan_on(cluster: Cluster) -> Plan:
    """Generation on the first device, training on the last."""
    last = len(cluster) - 1
    blocks = {"generate": (0,), "old_logprob": (last,), "train_actor": (last,)}
    return make_plan(grpo_graph(), blocks, cluster=cluster)


def host(name: str, rack: str = "", cores: int = 8, gpus: int = 0, accelerator: str = "") -> Host:
    return Host(name, f"10.0.0.{name}", cores, gpus, rack, accelerator)


def gpus(node: int, count: int, rack: int = 0, kind: str = "h100-sxm") -> Need:
    return Need(node, rack, kind, {f"device{node}-{i}": 1 for i in range(count)})


def test_a_plan_needs_the_nodes_of_its_devices_and_host_slots() -> None:
    found = needs(plan_on(racks(1, 1)))
    assert [(need.node, need.rack, need.gpus) for need in found] == [(0, 0, 0), (1, 1, 0)]
    assert set(found[0].lanes) == {"device0", "host0.0"}
    assert set(found[1].lanes) == {"device3"}


def test_nodes_of_a_rack_stay_in_one() -> None:
    needed = [gpus(0, 2, rack=0), gpus(1, 2, rack=0), gpus(2, 2, rack=1)]
    hosts = [host("1", "a", gpus=2), host("2", "b", gpus=2), host("3", "b", gpus=2)]
    found = place(needed, hosts)
    assert {found[0].rack, found[1].rack} == {"b"}
    assert found[2].rack == "a"


def test_without_labels_racks_are_not_looked_at() -> None:
    needed = [gpus(0, 2, rack=0), gpus(1, 2, rack=1), gpus(2, 2, rack=1)]
    found = place(needed, [host(str(i), gpus=2) for i in range(3)])
    assert {h.id for h in found.values()} == {"0", "1", "2"}


def test_the_smallest_node_that_fits_is_taken() -> None:
    found = place(
        [gpus(0, 2), gpus(1, 8)], [host("1", gpus=8), host("2", gpus=8, cores=64), host("3", gpus=4)]
    )
    assert (found[0].id, found[1].id) == ("3", "1")


def test_devices_of_another_kind_do_not_fit() -> None:
    hosts = [host("1", gpus=8, accelerator="A100"), host("2", gpus=8, accelerator="H100")]
    assert place([gpus(0, 8)], hosts)[0].id == "2"
    assert place([gpus(0, 8, kind="a100-80gb-sxm")], hosts)[0].id == "1"
    with pytest.raises(InputError, match="8 GPUs of A100"):
        place([gpus(0, 8)], hosts[:1])


def test_what_is_needed_and_what_is_there_are_said() -> None:
    with pytest.raises(InputError) as raised:
        place([gpus(0, 8), gpus(1, 8)], [host("1", gpus=8), host("2", gpus=4)])
    text = str(raised.value)
    assert "needs 2 nodes with 16 workers" in text
    assert "node 1: 8 GPUs of h100-sxm and 8 cores" in text
    assert "10.0.0.2: 4 GPUs and 8 cores" in text
    with pytest.raises(InputError, match=r"in one rack on the 2 nodes.*label rack"):
        place([gpus(0, 8), gpus(1, 8)], [host("1", "a", gpus=8), host("2", "b", gpus=8)])


@given(
    wanted=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=5),
    there=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "a", "b"])), max_size=7),
)
def test_whatever_is_placed_fits_and_no_node_is_taken_twice(
    wanted: list[tuple[int, int]], there: list[tuple[int, str]]
) -> None:
    needed = [gpus(i, count, rack) for i, (count, rack) in enumerate(wanted)]
    hosts = [host(str(i), rack, gpus=count) for i, (count, rack) in enumerate(there)]
    try:
        found = place(needed, hosts)
    except InputError:
        return
    assert len({h.id for h in found.values()}) == len(needed)
    assert all(found[need.node].fits(need) for need in needed)
    named = any(h.rack for h in hosts)
    racks_used = {(need.rack, found[need.node].rack) for need in needed}
    assert not named or len(racks_used) == len({need.rack for need in needed})


def test_a_node_that_differs_or_does_not_see_the_run_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    seen = look(str(tmp_path))
    with pytest.raises(InputError, match=r"node 10\.0\.0\.1 does not see .*filesystem that all nodes share"):
        check_alike({"10.0.0.1": seen}, str(tmp_path))
    (tmp_path / "header.json").write_text("{}")
    seen = look(str(tmp_path))
    check_alike({"10.0.0.1": seen}, str(tmp_path))
    with pytest.raises(InputError, match=r"10\.0\.0\.2 has torch 1\.0 and this one .*same on all nodes"):
        check_alike({"10.0.0.1": seen, "10.0.0.2": {**seen, "torch": "1.0"}}, str(tmp_path))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("", "must be HOST:PORT"),
        ("nonsense:::1x", "must be HOST:PORT"),
        ("ray://127.0.0.1:10001", "client protocol"),
    ],
)
def test_an_address_of_nothing_is_refused_at_once(address: str, said: str) -> None:
    with pytest.raises(InputError, match=said), ray_cluster(1, address):
        pass
