"""`rpeg calibrate`: what it needs, and where a kernel file goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rpeg.calibrate import accelerator
from rpeg.cli import main
from rpeg.cluster import device_kind
from rpeg.cost.kernels.files import KernelFile, peaks_of, read
from rpeg.cost.kernels.table import Table

TABLE = Table("gemm", "float32", "", 0, ("m", "n", "k"), ((1.0, 8.0), (64.0,), (64.0,)), (-2.0, -1.0))
OBSERVED = {
    "launch_seconds": 3e-6,
    "layers": [{"hidden": 64, "tokens": 8, "forward_seconds": 1e-3, "forward_backward_seconds": 3e-3}],
    "collectives": [
        {"collective": "all_reduce", "ranks": 2, "library": "gloo", "bytes": [1 << 20], "seconds": [1e-3]}
    ],
}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs a job"),
        (["job.yaml", "--kernels"], "takes no job"),
        (["--kernels", "--device", "tpu"], "known: auto, cpu, cuda"),
    ],
)
def test_what_cannot_be_measured_is_said(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(main.make_app(), ["calibrate", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())


def test_kernels_are_written_where_asked_and_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = KernelFile("cpu", peaks_of(device_kind("cpu")), {"date": "2026-01-02"}, (TABLE,), OBSERVED)
    monkeypatch.setattr(accelerator, "measure_kernels", lambda *_, **__: file)
    monkeypatch.setenv("RPEG_CACHE", str(tmp_path / "cache"))
    for arguments, where in (
        (["--out", str(tmp_path / "mine.json")], tmp_path / "mine.json"),
        ([], tmp_path / "cache" / "kernels-cpu.json"),
    ):
        result = CliRunner().invoke(
            main.make_app(), ["calibrate", "--kernels", "--device", "cpu", *arguments]
        )
        assert result.exit_code == 0, result.output
        assert read(where) == file
        assert "at best 37% of the advertised peak" in result.output
        assert "all_reduce, 2 × gloo" in result.output
        assert str(where) in result.output.replace("\n", "")


def test_a_file_that_cannot_be_written_is_told_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(accelerator, "measure_kernels", lambda *_, **__: pytest.fail("measured"))
    for where in (tmp_path, tmp_path / "taken" / "file.json"):
        (tmp_path / "taken").write_text("a file")
        asked = ["calibrate", "--kernels", "--device", "cpu", "--out", str(where)]
        result = CliRunner().invoke(main.make_app(), asked)
        assert (result.exit_code, "cannot write" in result.output) == (2, True)
