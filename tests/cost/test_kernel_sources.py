"""Whose tables are asked: the user's own file before the bundled ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.cluster import device_kind, fabric, system
from rpeg.cost import Machine, stack
from rpeg.cost.kernels import installed, kernels_of
from rpeg.cost.kernels.files import KernelFile, peaks_of
from rpeg.cost.kernels.sources import source_of
from rpeg.cost.kernels.table import Table
from rpeg.errors import InputError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RPEG_KERNELS", raising=False)
    source_of.cache_clear()


def own_file(kind: str) -> KernelFile:
    table = Table("gemm", "bfloat16", "", 0, ("m", "n", "k"), ((64.0, 128.0), (64.0,), (64.0,)), (-1.0, -1.0))
    return KernelFile(kind, peaks_of(device_kind(kind)), {"date": "2026-01-02"}, (table,))


def test_bundled_tables_are_asked_where_the_user_has_none() -> None:
    assert source_of(device_kind("h100-sxm")).what.startswith("bundled tables of aiconfigurator-core")


def test_a_file_in_the_cache_is_asked_first(tmp_path: Path) -> None:
    where = tmp_path / "cache" / "kernels-h100-sxm.json"
    where.parent.mkdir()
    where.write_text(own_file("h100-sxm").dumps())
    source = source_of(device_kind("h100-sxm"))
    assert source.what == f"measured kernels of {where}, 2026-01-02"
    assert source.own
    assert len(source.tables) == 1


def test_a_named_file_counts_for_its_kind_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = tmp_path / "mine.json"
    where.write_text(own_file("h200").dumps())
    monkeypatch.setenv("RPEG_KERNELS", str(where))
    assert str(where) in source_of(device_kind("h200")).what
    assert "bundled" in source_of(device_kind("h100-sxm")).what


def test_the_nearest_table_stands_in() -> None:
    source = source_of(device_kind("h100-sxm"))
    table, exact = source.find("attention", "bfloat16", "vllm", 80)
    assert table is not None
    assert (table.head_dim, exact) == (128, True)
    wider, exact = source.find("decode_attention", "int4", "vllm", 128)
    assert wider is not None
    assert (wider.dtype, exact) == ("bfloat16", False)
    other, _ = source.find("attention", "bfloat16", "nobody's", 128)
    assert other is not None
    assert source.find("gemm", "float64", "", 0) == (None, False)


def test_a_file_of_the_users_that_does_not_exist_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RPEG_KERNELS", "/nowhere/mine.json")
    with pytest.raises(InputError, match=r"/nowhere/mine\.json, which does not exist"):
        source_of(device_kind("h100-sxm"))


def test_a_folder_of_the_packages_name_is_no_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / installed.SYSTEMS["h100-sxm"]).mkdir(parents=True)
    monkeypatch.setattr(installed, "data_folder", lambda: tmp_path)
    monkeypatch.setattr(installed, "PACKAGE", "no-such-package-at-all")
    assert installed.tables("h100-sxm", "0") is None


@pytest.mark.parametrize("library", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("kind", ["h100-sxm", "h200"])
def test_experts_in_8_bits_take_the_kernel_of_their_library_that_was_tuned(kind: str, library: str) -> None:
    source = source_of(device_kind(kind))
    table, exact = source.find("experts", "float8", library, 0)
    assert table is not None
    assert (table.dtype, table.library, exact) == ("float8-block", library, True)


def test_experts_in_8_bits_keep_a_scale_a_tensor_where_that_kernel_is_better() -> None:
    table, _ = source_of(device_kind("b200")).find("experts", "float8", "vllm", 0)
    assert table is not None
    assert table.dtype == "float8"


def test_narrower_experts_are_not_slower_while_weights_bind() -> None:
    for kind in ("h100-sxm", "h200", "b200"):
        for library in ("vllm", "sglang", "tensorrt-llm"):
            kernels = kernels_of(Machine(device_kind(kind), fabric(system("dgx-h100")), stack(library, kind)))
            for rows in (8.0, 64.0, 256.0, 2048.0):
                wide, narrow = (
                    kernels.experts(rows, 128, 2048, 768, dtype) for dtype in ("bfloat16", "float8")
                )
                assert narrow.seconds < 1.35 * wide.seconds, (kind, library, rows)
