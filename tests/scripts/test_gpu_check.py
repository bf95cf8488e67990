"""The check of a GPU, tried out on the CPU: every plan is predicted, run and compared, and what fails is written down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


@pytest.mark.slow
def test_it_predicts_and_measures_five_plans(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--device", "cpu", "--tiny", "--results", str(results)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    found = json.loads(results.read_text())
    assert found["hardware"]["versions"]["torch"]
    assert set(found["kernels"]["tables"]) >= {"memory", "gemm float32"}
    assert len(found["plans"]) == 5
    for plan in found["plans"]:
        assert plan["proven"]
        assert plan["step"]["measured_seconds"] > 0
        assert plan["step"]["predicted_seconds"] > 0
        assert plan["stages"]["train_actor"]["measured_seconds"] > 0
        assert plan["memory"]["measured_bytes"] > 0
        assert plan["memory"]["predicted_bytes"] == pytest.approx(sum(plan["memory"]["parts"].values()))


def test_without_a_gpu_it_says_what_can_be_done(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no CUDA device is visible to torch here" in done.stderr
