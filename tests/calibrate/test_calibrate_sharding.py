"""The probes that need two ranks, for a very small model: real workers, one round."""

import os
import sys

import pytest

from rpeg.architecture import Architecture
from rpeg.calibrate import Shapes, measure

pytest.importorskip("torch")
pytest.importorskip("ray")

TINY = Architecture("tiny", "llama", 2, 32, 4, 2, 8, 64, 64, 128, tied_embeddings=True)


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two workers need two cores")
def test_two_workers_measure_every_op_and_the_cache_keeps_it(tmp_path, monkeypatch) -> None:
    from rpeg.cost import OPS

    monkeypatch.setenv("RPEG_CACHE", str(tmp_path))
    monkeypatch.setattr(sys.modules["rpeg.calibrate.measure"], "ROUNDS", 1)
    monkeypatch.setattr(sys.modules["rpeg.calibrate.measure"], "BUDGET_SECONDS", 0.0)
    found = measure(TINY, "float32", 2, Shapes(4, 16))
    assert set(found.tables) == set(OPS)
    assert found.tables["all_reduce"].points[0] == (2.0,)
    assert float(found.tables["sharded_update"].at()) > 0
    assert float(found.tables["call"].at()) > 0
    assert measure(TINY, "float32", 2, Shapes(4, 16)) == found
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["calibration", "transport"]
