"""Distillation of a made-up package whose kernels run at half of the peak."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rpeg.cluster import device_kind
from rpeg.cost.kernels import installed
from rpeg.cost.kernels.distil import distil
from rpeg.cost.kernels.distil.package import versions
from rpeg.cost.kernels.ideal import ideal_seconds
from rpeg.cost.kernels.sources import source_of
from rpeg.cost.kernels.work import gemm_work

H100 = device_kind("h100-sxm")
SIDES = (64, 256, 1024, 4096)


def write_products(folder: Path, efficiency: float) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    shapes = np.asarray(list(itertools.product((1, 16, 256, 4096), SIDES, SIDES)))
    m, n, k = shapes.T
    seconds = ideal_seconds(H100, gemm_work(m, n, k, "bfloat16"), "bfloat16") / efficiency
    columns: dict[str, Any] = {"m": m, "n": n, "k": k, "latency": seconds * 1e3}
    columns["gemm_dtype"] = ["bfloat16"] * len(m)
    folder.mkdir(parents=True)
    parquet.write_table(pyarrow.table(columns), folder / "gemm_perf.parquet")


def test_a_table_holds_the_efficiency_that_was_measured(tmp_path: Path) -> None:
    write_products(tmp_path / "h100_sxm" / "gemm" / "vllm" / "0.10.0", 0.5)
    write_products(tmp_path / "h100_sxm" / "gemm" / "vllm" / "0.9.0", 0.25)  # older, though it sorts after
    (table,), files = distil(H100, tmp_path)
    assert (table.op, table.dtype) == ("gemm", "bfloat16")
    assert np.exp(table.logs) == pytest.approx(0.5, rel=0.01)
    assert files == ["h100_sxm/gemm/vllm/0.10.0/gemm_perf.parquet"]


def test_what_is_faster_than_the_peak_is_not_believed(tmp_path: Path) -> None:
    write_products(tmp_path / "h100_sxm" / "gemm" / "vllm" / "1.0", 3.0)
    tables, _ = distil(H100, tmp_path)
    # Of these shapes few exceed every cache: what remains is capped at what kernels can reach.
    assert all(max(table.logs) <= 0.0 for table in tables)


def test_release_candidates_come_before_their_release(tmp_path: Path) -> None:
    for version in ("1.3.0", "1.3.0rc9", "1.3.0rc20", "1.2.0"):
        (tmp_path / "trtllm" / version).mkdir(parents=True)
        (tmp_path / "trtllm" / version / "x.parquet").touch()
    names = [file.parent.name for file in versions(tmp_path, "trtllm", "x")]
    assert names == ["1.2.0", "1.3.0rc9", "1.3.0rc20", "1.3.0"]


def test_an_installed_package_of_another_version_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_products(tmp_path / "data" / "h100_sxm" / "gemm" / "vllm" / "1.0", 0.5)
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RPEG_KERNELS", raising=False)
    monkeypatch.setattr(installed, "data_folder", lambda: tmp_path / "data")
    monkeypatch.setattr(installed.metadata, "version", lambda _: "9.9")
    source_of.cache_clear()
    source = source_of(H100)
    assert source.what == "installed aiconfigurator-core 9.9"
    assert list(source.tables) == [("gemm", "bfloat16", "", 0)]
    assert (tmp_path / "cache" / "aiconfigurator-9.9-h100-sxm.json").exists()
    source_of.cache_clear()
    assert source_of(device_kind("a100-80gb-sxm")).what.startswith("bundled")  # it holds nothing of an A100
    source_of.cache_clear()
