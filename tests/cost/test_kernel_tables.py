"""The bundled tables: they load, say where they are from, and meet the measurements they stand for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cluster import device_kind
from rpeg.cost.kernels.asked import asked
from rpeg.cost.kernels.distil.grid import isotonic, on_grid
from rpeg.cost.kernels.files import KernelFile, peaks_of
from rpeg.cost.kernels.ideal import computes_as
from rpeg.cost.kernels.reference import REFERENCES
from rpeg.cost.kernels.sources import bundled, bundled_kinds, source_of
from rpeg.cost.kernels.table import Table
from rpeg.errors import InputError

# Median and 90th percentile of the logarithm that a table may be off. Experts: on A100 only skewed loads were measured.
# Attention: a few samples lie far below the measured shares of key and value heads.
LIMITS = {"experts": (0.14, 0.42), "attention": (0.08, 0.42)}
SAMPLES = json.loads((Path(__file__).parent / "facts" / "measured_kernels.json").read_text())["samples"]


@pytest.mark.parametrize("kind", bundled_kinds())
def test_bundled_tables_say_where_they_are_from_and_what_they_count_against(kind: str) -> None:
    file = bundled(kind)
    assert file is not None
    assert file.kind == kind
    assert {"package", "version", "licence", "url", "files"} <= set(file.provenance)
    # The peaks of the kind's own file: were they changed, efficiencies would mean other seconds.
    assert file.reference == peaks_of(device_kind(kind))
    assert {"gemm", "attention", "decode_attention", "experts"} <= {table.op for table in file.tables}
    assert all(table.op in REFERENCES for table in file.tables)


def test_bundled_tables_stay_small() -> None:
    folder = Path(__file__).parents[2] / "src" / "rpeg" / "cost" / "data" / "kernels"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 1e6


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s['kind']}-{s['op']}-{s['dtype']}")
def test_measured_kernels_are_met(sample: dict[str, object]) -> None:
    kind = device_kind(str(sample["kind"]))
    key = (str(sample["op"]), str(sample["dtype"]), str(sample["library"]), int(str(sample["head_dim"])))
    table = source_of(kind).tables[key]
    assert list(table.axes) == sample["axes"]
    made = asked(kind, table, computes_as(kind, table.dtype), 0.0, True)
    points = np.asarray(sample["points"])
    where = list(points[:, :-1].T)
    seconds = made.timed(REFERENCES[table.op](table, *where), *where).seconds
    off = np.abs(np.log(seconds / points[:, -1]))
    median, ninth = LIMITS.get(table.op, (0.08, 0.35))
    assert np.median(off) < median
    assert np.quantile(off, 0.9) < ninth


def test_a_file_reads_back_as_written() -> None:
    table = Table("gemm", "bfloat16", "", 0, ("m", "n", "k"), ((1.0, 2.0), (64.0,), (64.0,)), (-0.5, -0.25))
    file = KernelFile("h100-sxm", {"peak": 1.0}, {"package": "none"}, (table,))
    assert KernelFile.loads(file.dumps(), "here") == file


def test_broken_files_are_named() -> None:
    with pytest.raises(InputError, match="here is not JSON"):
        KernelFile.loads("{", "here")
    with pytest.raises(InputError, match="schema 99"):
        KernelFile.loads('{"schema": 99}', "here")
    with pytest.raises(InputError, match="ascending"):
        Table("gemm", "bfloat16", "", 0, ("m",), ((2.0, 1.0),), (0.0, 0.0))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=3, max_size=3))
def test_isotonic_rises_and_leaves_what_rises(rows: list[list[float]]) -> None:
    values = np.asarray(rows)
    fitted = isotonic(values, rounds=100)
    assert (np.diff(fitted, axis=0) > -0.05).all()
    assert (np.diff(fitted, axis=1) > -0.05).all()
    assert fitted.mean() == pytest.approx(values.mean(), abs=1e-6)
    rising = np.maximum.accumulate(np.maximum.accumulate(values, 0), 1)
    assert isotonic(rising) == pytest.approx(rising)


def test_a_grid_takes_points_on_nodes_as_they_are_and_fills_holes_from_neighbours() -> None:
    axes = [[1.0, 2.0, 4.0], [1.0, 10.0]]
    x, y = np.asarray([1.0, 2.0, 4.0, 1.9]), np.asarray([1.0, 1.0, 1.0, 9.0])
    grid = on_grid(axes, [x, y], np.asarray([1.0, 2.0, 3.0, 7.0]))
    assert grid[:, 0] == pytest.approx([1.0, 2.0, 3.0])
    assert grid[1, 1] == pytest.approx(7.0)
    assert grid[2, 1] == pytest.approx((3.0 + 7.0) / 2)
