"""Kernels of the processor at hand, with a clock that needs no time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg.calibrate.accelerator import device_of, kind_of, measure_kernels
from rpeg.calibrate.accelerator.clock import Call, CpuClock
from rpeg.calibrate.accelerator.collectives import between
from rpeg.calibrate.accelerator.grids import ACCELERATOR, CORE, Grids
from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import Machine, stack
from rpeg.cost.kernels import kernels_of, source_of
from rpeg.cost.kernels.files import read
from rpeg.errors import InputError

TINY = replace(
    CORE,
    m=(1.0, 8.0),
    sides=(16.0, 32.0),
    work=(256.0, 512.0),
    length=(8.0, 16.0),
    head_dims=(16,),
    rows=(4.0, 8.0),
    context=(8.0, 16.0),
    sizes=(64.0, 4096.0),
    layer=(32, 4, 2, 64, 16),
)


class Counting:
    """Runs every call once and says that it took a microsecond more than the one before."""

    def __init__(self) -> None:
        self.asked = 0

    def seconds(self, calls: list[Call]) -> float:
        for call in calls:
            call()
        self.asked += 1
        return 1e-6 * self.asked

    def host_seconds(self, call: Call) -> float:
        call()
        return 5e-6


def test_a_kernel_file_of_this_machine_is_what_estimates_then_rest_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, said = Counting(), []
    cpu = device_kind("cpu")
    file = measure_kernels(torch.device("cpu"), cpu, grids=TINY, clock=clock, say=said.append)
    assert file is not None
    assert {table.op for table in file.tables} == {"gemm", "attention", "decode_attention", "memory"}
    assert clock.asked == 8 + 8 + 4 + 2 + 2 * len(file.observations["copies"]) + 2
    assert file.observations["launch_seconds"] == 5e-6
    assert file.provenance["date"]
    assert any("gemm" in line for line in said)

    where = tmp_path / "own.json"
    where.write_text(file.dumps())
    assert read(where) == file
    monkeypatch.setenv("RPEG_KERNELS", str(where))
    source_of.cache_clear()
    kernels_of.cache_clear()
    kernels = kernels_of(Machine(cpu, Fabric(((Link("node", 1e10, 1e-6), 2),)), stack("megatron", "cpu")))
    assert str(where) in kernels.source.what
    # The first shape took 1 µs, the last of the 8 products 8 µs: to the 1 % in which files keep efficiencies.
    assert kernels.gemm(1, 16, 16, "float32").seconds == pytest.approx(1e-6, rel=0.02)
    last = kernels.gemm(8, 32, 32, "float32")
    assert last.seconds == pytest.approx(8e-6, rel=0.02)
    assert last.measured
    assert kernels.attention(256 * 16 / 8, 64, 4, 1, 16, "float32").measured
    assert kernels.memory(4096.0).measured
    source_of.cache_clear()
    kernels_of.cache_clear()


def test_grids_hold_whole_sequences() -> None:
    for grids in (ACCELERATOR, CORE, TINY):
        check(grids)


def check(grids: Grids) -> None:
    """Every combination of an attention table's axes is a whole number of sequences of the grid's heads."""
    assert min(grids.work) >= max(grids.length) * grids.heads
    assert all(work % (length * grids.heads) == 0 for work in grids.work for length in grids.length)
    assert all(rows % grids.kv_heads == 0 for rows in grids.rows)
    assert all(
        points == tuple(sorted(points)) for points in (grids.m, grids.sides, grids.sizes, grids.messages)
    )


def test_devices_are_named() -> None:
    assert device_of("cpu").type == "cpu"
    assert kind_of(torch.device("cpu")).name == "cpu"
    assert kind_of(torch.device("cpu"), "H100").name == "h100-sxm"
    with pytest.raises(InputError, match="known: auto, cpu, cuda"):
        device_of("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA device"):
            device_of("cuda")


def test_a_clock_rotates_over_the_copies_it_is_given() -> None:
    seen: list[int] = []
    assert CpuClock(budget_seconds=0.0).seconds([lambda: seen.append(0), lambda: seen.append(1)]) > 0
    assert seen == [0, 0, 1, 0]


@pytest.mark.slow
def test_collectives_between_two_processes() -> None:
    curves = between(2, "cpu", (1024.0, 4096.0))
    assert {c["collective"] for c in curves} == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    assert all(c["library"] == "gloo" and c["ranks"] == 2 and c["bytes"] == [1024, 4096] for c in curves)
    assert all(seconds > 0 for c in curves for seconds in c["seconds"])
