"""Clusters that users describe in a file of their own."""

from pathlib import Path

import pytest

from rpeg.cluster import Cluster, cluster_from, device_kind, read_cluster, system
from rpeg.errors import InputError

OWN = """
name: ours
kinds:
  - name: next
    memory_bytes: 1.0e+11
    memory_bandwidth_bytes_per_second: 5.0e+12
    peak_flops: {float32: 8.0e+13, bfloat16: 2.0e+15}
    host_bandwidth_bytes_per_second: 6.0e+10
    like: h200
racks:
  - nodes:
      - kind: next
        devices: 8
        host_memory_bytes: 1000000000000
        host_slots: 64
        link: &link {bandwidth_bytes_per_second: 4.0e+11, latency_seconds: 2.0e-6}
      - {kind: h100-sxm, devices: 8, host_memory_bytes: 1000000000000, host_slots: 64, link: *link}
    link: &network {bandwidth_bytes_per_second: 5.0e+10, latency_seconds: 4.0e-6}
link: *network
"""


def written(folder: Path, text: str, name: str = "ours.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_own_and_bundled_kinds_stand_side_by_side(tmp_path: Path) -> None:
    cluster = read_cluster(written(tmp_path, OWN))
    assert [kind.name for kind in cluster.kinds] == ["next", "h100-sxm"]
    assert cluster.kinds[1] == device_kind("h100-sxm")
    assert cluster.kinds[0].like == "h200"
    assert cluster.kinds[0].usable_memory_bytes == cluster.kinds[0].memory_bytes == 10**11
    assert Cluster.from_json(cluster.to_json()) == cluster


def test_a_bundled_system_in_short(tmp_path: Path) -> None:
    assert cluster_from({"system": "dgx-h100", "nodes": 4}) == system("dgx-h100", 4)
    assert cluster_from({"system": "gb200-nvl72", "nodes": 36, "nodes_per_rack": 16}).racks[2].nodes[3:] != ()
    one = read_cluster(written(tmp_path, '{"system": "workstation-rtx-4090", "devices": 1}', "one.json"))
    assert len(one) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN.replace("kind: h100-sxm", "kind: h100-smx"), "Did you mean 'h100-sxm'"),
        (OWN.replace("kind: next", "kind: nxt"), "Did you mean 'next'"),
        (OWN.replace("like:", "lik:"), "device kind next has no field 'lik'. Did you mean 'like'"),
        (OWN.replace("host_slots: 64, link: *link", "host_slot: 64, link: *link"), "lacks 'host_slots'"),
        ("system: dgx-h10", "no system 'dgx-h10'. Did you mean 'dgx-h100'"),
        ("{system: dgx-h100, node: 4}", "no field 'node'. Did you mean 'nodes'"),
        ("{system: dgx-h100, nodes: 0}", "nodes = 0"),
        ("{system: dgx-h100, devices: 9}", "has 8 devices a node, 9 asked"),
        ("{system: dgx-h100, nodes_per_rack: two}", "nodes_per_rack = 'two'"),
        ("[1, 2]", "an object with named fields is needed"),
        ("a: [", "is not YAML"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_cluster(written(tmp_path, text))


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(InputError, match="0 nodes asked"):
        system("dgx-h100", 0)
    with pytest.raises(InputError, match="0 nodes a rack asked"):
        system("dgx-h100", 2, nodes_per_rack=0)
