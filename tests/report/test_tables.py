"""Tables fit the console, whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from plans_shown import shown

from rpeg.cost import Memory
from rpeg.report.forecast import alike
from rpeg.report.tables import fitting
from rpeg.sim import DeviceMemory


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(45, 120))
def test_wide_tables_are_cut_between_columns_and_no_cell_is(widths: list[int], width: int) -> None:
    cells = [chr(ord("a") + i) * size for i, size in enumerate(widths)]
    names = [f">{cell.upper()}" for cell in cells]
    texts = [shown(table, width=width) for table in fitting(("phase", *names), [("update", *cells)], width)]
    for text in texts:
        assert max(map(len, text.splitlines())) <= width
        assert "update" in text
    words = " ".join(texts).split()
    assert [w for w in words if w in cells] == cells
    assert all(cell.upper() in words for cell in cells)


def test_a_row_without_a_cell_in_a_table_is_left_out_of_it() -> None:
    device, host = fitting(("", ">" + "d" * 30, ">" + "h" * 30), [("load", "1", ""), ("host", "", "2")], 40)
    assert "host" not in shown(device)
    assert "load" not in shown(host)


def _held(*ids: int, host: bool = False) -> DeviceMemory:
    return DeviceMemory(ids, 1, (Memory("update", ()),), host)


def test_those_that_hold_the_same_are_named_by_their_numbers() -> None:
    assert alike(_held(8)) == "device 8"
    assert alike(_held(*range(8, 16))) == "devices 8-15"
    assert alike(_held(0, host=True)) == "host of node 0"
    assert alike(_held(*range(7), host=True)) == "hosts of nodes 0-6"
    assert alike(_held(*range(0, 64, 8))) == "devices 0,8,…,56 (8)"
