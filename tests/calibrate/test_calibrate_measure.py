"""One real calibration of a very small model, in one process."""

import pytest

from rpeg.architecture import Architecture
from rpeg.calibrate import Shapes
from rpeg.calibrate.worker import measure as measure_here

pytest.importorskip("torch")

TINY = Architecture("tiny", "llama", 2, 32, 4, 2, 8, 64, 64, 128, tied_embeddings=True)


def test_every_op_of_one_device_is_timed() -> None:
    from rpeg.calibrate.measure import _by_shape
    from rpeg.calibrate.tables import tables
    from rpeg.cost import OPS

    task = {
        "architecture": TINY.to_json(),
        "dtype": "float32",
        "shapes": Shapes(4, 16).to_json(),
        "rounds": 1,
        "budget_seconds": 0.0,
        "rank": 0,
        "ranks": 1,
    }
    result = measure_here(task)
    out = tables(_by_shape(result["seconds"]))
    between_processes = {
        "sharded_forward",
        "sharded_backward",
        "sharded_update",
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "call",
        "put",
        "get",
    }
    assert set(out) == set(OPS) - between_processes
    assert float(out["decode"].at(4, 16)) > 0
    assert float(out["forward_backward"].at(4, 16)) > float(out["forward"].at(1, 8)) > 0
    assert result["context_bytes"] > 10e6
