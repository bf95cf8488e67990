import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cost import OPS, Calibration, Grid
from rpeg.cost.passes import table as calibrations
from rpeg.errors import InputError

PLANE = Grid(
    ("rows", "tokens"),
    ((1.0, 4.0, 16.0), (8.0, 64.0)),
    tuple(1.0 + 2 * r + 0.5 * t + 0.25 * r * t for r in (1, 4, 16) for t in (8, 64)),
)


@st.composite
def grids(draw) -> Grid:
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    points = tuple(tuple(float(2**k) for k in range(n)) for n in shape)
    entry = st.floats(0, 100, allow_nan=False)
    seconds = draw(st.lists(entry, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
    return Grid(tuple("ab"[: len(shape)]), points, tuple(seconds))


POSITION = st.floats(0.1, 50, allow_nan=False)


@given(st.floats(1, 16), st.floats(8, 64))
def test_a_start_and_so_much_a_unit_are_met_exactly(rows: float, tokens: float) -> None:
    assert PLANE.at(rows, tokens) == pytest.approx(1 + 2 * rows + 0.5 * tokens + 0.25 * rows * tokens)


def test_beyond_the_last_point_work_is_proportional_and_below_the_first_it_is_the_first() -> None:
    corner = float(PLANE.at(16, 64))
    assert PLANE.at(32, 64) == pytest.approx(2 * corner)
    assert PLANE.at(32, 128) == pytest.approx(4 * corner)
    assert PLANE.at(0.5, 1) == PLANE.at(1, 8)


def test_arrays_are_looked_up_together() -> None:
    rows, tokens = np.array([1, 2, 40]), np.array([8, 9, 10])
    assert PLANE.at(rows, tokens) == pytest.approx(
        [float(PLANE.at(r, t)) for r, t in zip(rows, tokens, strict=True)]
    )
    assert Grid((), (), (0.25,)).at() == 0.25


@settings(deadline=None, max_examples=80)
@given(grids(), st.data())
def test_more_work_never_takes_less(grid: Grid, data) -> None:
    small = [data.draw(POSITION) for _ in grid.axes]
    large = [x + data.draw(st.floats(0, 10)) for x in small]
    assert grid.at(*large) >= grid.at(*small) - 1e-9


@settings(deadline=None, max_examples=80)
@given(grids(), st.data())
def test_raising_an_entry_never_lowers_a_time(grid: Grid, data) -> None:
    where = data.draw(st.integers(0, len(grid.seconds) - 1))
    raised = tuple(s + data.draw(st.floats(0, 50)) * (k == where) for k, s in enumerate(grid.seconds))
    position = [data.draw(POSITION) for _ in grid.axes]
    assert replace(grid, seconds=raised).at(*position) >= grid.at(*position) - 1e-9


@settings(deadline=None, max_examples=30)
@given(grids())
def test_grids_survive_json(grid: Grid) -> None:
    assert Grid.from_json(json.loads(json.dumps(grid.to_json()))) == grid


@pytest.mark.parametrize(
    ("axes", "points", "seconds"),
    [
        (("rows",), ((1.0, 1.0),), (1.0, 2.0)),
        (("rows",), ((0.0, 1.0),), (1.0, 2.0)),
        (("rows",), ((1.0, 2.0),), (1.0,)),
        (("rows",), ((1.0, 2.0),), (1.0, float("nan"))),
        (("rows",), ((1.0, 2.0),), (1.0, -1.0)),
        (("rows", "tokens"), ((1.0,),), (1.0,)),
        (("rows",), ((),), ()),
    ],
)
def test_broken_grids_are_refused(axes: tuple, points: tuple, seconds: tuple) -> None:
    with pytest.raises(InputError):
        Grid(axes, points, seconds)


def calibration() -> Calibration:
    return Calibration(
        "cpu",
        "a processor",
        "float32",
        "2026-01-01T00:00:00Z",
        "abc",
        {"torch": "2"},
        {"prefill": PLANE, "call": Grid((), (), (1e-3,))},
        {"context": 1e8},
    )


def test_a_calibration_survives_its_file(tmp_path) -> None:
    path = tmp_path / "deep" / "c.json"
    calibrations.write(calibration(), path)
    assert calibrations.read(path) == calibration()
    assert [p.name for p in path.parent.iterdir()] == ["c.json"]


def test_wrong_tables_are_named() -> None:
    with pytest.raises(InputError, match=r"table 'prefil'.*Did you mean 'prefill'"):
        replace(calibration(), tables={"prefil": PLANE})
    with pytest.raises(InputError, match="'decode' has axes"):
        replace(calibration(), tables={"decode": PLANE})


def test_wrong_files_are_named(tmp_path) -> None:
    data = calibration().to_json()
    with pytest.raises(InputError, match="schema 0"):
        Calibration.from_json({**data, "schema": 0})
    with pytest.raises(InputError, match="Did you mean 'tables'"):
        Calibration.from_json({**data, "table": {}})
    with pytest.raises(InputError, match="broken"):
        Calibration.from_json({key: value for key, value in data.items() if key != "tables"})
    with pytest.raises(InputError, match="cannot be read"):
        calibrations.read(tmp_path / "nothing.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        calibrations.read(tmp_path / "broken.json")


def test_every_op_says_its_axes() -> None:
    assert all(isinstance(axes, tuple) for axes in OPS.values())
