"""The bundled kinds and systems: every number has a source, and the numbers are plausible beside each other."""

import pytest
import yaml

from rpeg.cluster import DeviceKind, device_kind, device_kinds, fabric, relatives, system, systems, systems_of
from rpeg.cluster.sources import DATA, load

WIDTHS = ("float64", "float32", "tfloat32", "bfloat16", "float8", "float4")
GPUS = tuple(name for name in device_kinds() if name != "cpu")


@pytest.mark.parametrize("name", device_kinds())
def test_every_number_of_a_kind_has_a_source(name: str) -> None:
    kind = device_kind(name)
    given = set(load("kinds", name))
    assert set(dict(kind.sources)) == given
    assert all(len(source) > 10 for source in dict(kind.sources).values())
    assert given >= {"memory_bytes", "memory_bandwidth_bytes_per_second", "peak_flops"}
    assert DeviceKind.from_json(kind.to_json()) == kind


@pytest.mark.parametrize("name", GPUS)
def test_narrower_dtypes_are_not_slower(name: str) -> None:
    peaks = dict(device_kind(name).peak_flops)
    ordered = [peaks[dtype] for dtype in WIDTHS if dtype in peaks]
    assert ordered == sorted(ordered)
    assert peaks["float16"] == peaks.get("bfloat16", peaks["float16"])
    assert peaks["float32"] > 1e13  # FLOP/s, not TFLOP/s


@pytest.mark.parametrize("name", GPUS)
def test_a_kind_is_whole(name: str) -> None:
    kind = device_kind(name)
    # error correction takes a sixteenth of GDDR memory
    assert 0.93 * kind.memory_bytes < kind.usable_memory_bytes <= kind.memory_bytes
    assert kind.memory_bandwidth_bytes_per_second > 4 * kind.host_bandwidth_bytes_per_second
    assert kind.power_watts > 50
    assert kind.multiprocessors > 50
    assert kind.l2_bytes >= 6 * 2**20
    assert kind.generation in ("volta", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra")


@pytest.mark.parametrize("name", GPUS)
def test_peaks_are_dense(name: str) -> None:
    """Sparse figures, twice the dense ones, would exceed what an SM's tensor cores do at any clock.

    FLOP a cycle and SM in float16: V100, A100, H100, Ada and Blackwell whitepapers; GA102 has half of GA100's.
    """
    kind = device_kind(name)
    a_cycle = {"volta": 1024, "ampere": 2048, "ada": 1024, "hopper": 4096, "blackwell": 8192}
    ga102 = kind.generation == "ampere" and "float64" not in dict(kind.peak_flops)
    most = 1024 if ga102 else a_cycle[kind.generation.removesuffix("-ultra")]
    assert kind.peak("float16") / kind.multiprocessors < most * 2.6e9


@pytest.mark.parametrize("name", GPUS)
def test_stand_ins_end(name: str) -> None:
    chain = list(relatives(device_kind(name)))
    assert len({kind.name for kind in chain}) == len(chain)
    assert chain[0].name == name
    assert all(kind.like in device_kinds() for kind in chain if kind.like is not None)


@pytest.mark.parametrize("name", systems())
def test_every_number_of_a_system_has_a_source(name: str) -> None:
    def check(entry: object) -> None:
        if entry == "efa":  # a link's transport is a word
            return
        assert isinstance(entry, dict)
        if "value" in entry:
            assert entry["value"] > 0
            assert len(entry["source"]) > 10
        else:
            for part in entry.values():
                check(part)

    data = yaml.safe_load((DATA / "systems" / f"{name}.yaml").read_text(encoding="utf-8"))
    check({key: entry for key, entry in data.items() if key != "kind"})


@pytest.mark.parametrize("name", systems())
def test_links_get_slower_outwards(name: str) -> None:
    cluster = system(name, 4, nodes_per_rack=2)
    links = (cluster.nodes[0].link, cluster.racks[0].link, cluster.link)
    bandwidths = [link.bandwidth_bytes_per_second for link in links]
    latencies = [link.latency_seconds for link in links]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert latencies == sorted(latencies)
    nvlink = cluster.nodes[0].kind.nvlink_bandwidth_bytes_per_second
    assert not nvlink or links[0].bandwidth_bytes_per_second == nvlink


def test_an_nvl72_is_one_domain_of_trays() -> None:
    cluster = system("gb200-nvl72", 36)
    assert len(cluster) == 144
    assert len(cluster.racks) == 2
    joined = fabric(cluster)
    assert (joined.devices_per_node, joined.devices_per_host, joined.devices) == (72, 4, 144)
    assert [hop.fanout for hop in joined.hops(144)] == [72, 2]
    assert joined.slowest(72) == cluster.nodes[0].link


def test_the_systems_of_a_kind() -> None:
    assert "dgx-h100" in systems_of("h100-sxm")
    assert systems_of("l20") == ()
