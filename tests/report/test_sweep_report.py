"""Sweeps as tables, JSON, CSV and plots."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from rpeg.report.sweep import choice_json, choice_lines, legend, misses, row_json, rows_csv, rows_table
from rpeg.report.sweep_plot import HEIGHT, MOST_LINES, WIDTH, _round_values, plot
from rpeg.search.sweep import Outcome, Row
from rpeg.search.target import cheapest

SVG = "{http://www.w3.org/2000/svg}"


def row(
    devices: int, seconds: float, kind: str = "h100-sxm", staleness: int = 0, price: float | None = 0.0
) -> Row:
    price = devices * seconds if price == 0.0 else price
    outcome = Outcome(
        "split, [b]<&>", (), (), seconds, seconds, seconds * 1.1, 1000.0, price, 2e9, "update", 0.1, 0.2
    )
    return Row(f"{devices}{kind}{staleness}", kind, devices, staleness, 1, 100.0, outcome=outcome)


UNFIT = Row("no", "h100-sxm", 1, 0, 1, 100.0, reason="nothing fits; the nearest lacks 3 GiB")
ROWS = [UNFIT, row(8, 20.0), row(16, 12.0), row(32, 9.0)]


def shown(rows: list[Row], width: int) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(rows_table(rows, width))
    return capture.get()


def test_a_table_has_a_line_for_each_plan_and_a_column_for_what_changes() -> None:
    lines = shown(ROWS, 140).splitlines()
    assert len(lines) == 2 + 3
    assert "split, [b]<&>" in lines[2]
    assert "kind" not in lines[0]
    assert "stale" not in lines[0]
    wide = shown([*ROWS, row(8, 18.0, "h200", 1)], 140).splitlines()[0]
    assert "kind" in wide
    assert "stale" in wide
    assert "price" not in shown([row(8, 20.0, price=None)], 140)


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_narrow_terminals_lose_columns_and_no_figure(width: int) -> None:
    lines = shown(ROWS, width).splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    for name in ("devices", "step", "scaling", "price"):
        assert name in lines[0]


def test_with_all_axes_80_columns_are_enough_and_the_legend_is_of_what_is_shown() -> None:
    figures = replace(ROWS[3].outcome or ROWS[1].outcome, step_seconds=7200.0, price=98765432.0)  # type: ignore[type-var]
    many = [*ROWS, Row("m", "rtx-6000-ada", 2048, 2, 16, 32768.0, outcome=figures)]
    lines = shown(many, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    said = legend(rows_table(many, 80))
    assert "gap: " not in said
    assert "--csv and --json also have p95, tok/s" in said
    assert "--csv" not in legend(rows_table(ROWS, 200))


def test_what_cannot_be_had_says_why() -> None:
    assert list(misses(ROWS)) == ["1 device: nothing fits; the nearest lacks 3 GiB"]
    (line,) = misses([*ROWS, row(8, 18.0, "h200", 1)])
    assert line.startswith("1 × h100-sxm, staleness 0: ")


@pytest.mark.parametrize(
    ("rows", "target", "words"),
    [
        (ROWS, 15.0, "cheapest with 16 devices, split, [b]<&>: 12 s, 192 for"),
        (ROWS, 3.0, "The nearest, 32 devices, takes 9 s, 3.00 times as long"),
        ([UNFIT], 3.0, "no size has a plan"),
        ([row(8, 2.0, price=None)], 3.0, "device-hours decided"),
    ],
)
def test_the_choice_is_told(rows: list[Row], target: float, words: str) -> None:
    choice = cheapest(rows, target)
    assert words in "\n".join(choice_lines(choice, rows))
    assert json.loads(json.dumps(choice_json(choice, rows)))["target_seconds"] == target


def test_json_and_csv_have_the_same_figures() -> None:
    listed = list(csv.DictReader(io.StringIO(rows_csv(ROWS))))
    for line, one in zip(listed, ROWS, strict=True):
        value = json.loads(json.dumps(row_json(one, ROWS)))
        assert list(line) == list(value)
        assert line["step_seconds"] == ("" if value["step_seconds"] is None else str(value["step_seconds"]))
    assert row_json(ROWS[2], ROWS)["efficiency"] == pytest.approx(0.5)
    assert rows_csv([]) == "\n"


def test_a_plot_is_one_file_with_a_mark_for_every_plan() -> None:
    rows = [*ROWS, row(8, 25.0, "<l40s>&")]
    root = ElementTree.fromstring(plot(rows, target_seconds=10.0))
    titles = [t.text or "" for t in root.iter(f"{SVG}title")]
    assert len(titles) == 1 + 2 * 4
    assert titles[1] == "h100-sxm: 8 devices, 20 s"
    texts = [t.text or "" for t in root.iter(f"{SVG}text")]
    assert "<l40s>&" in texts
    assert "target 10 s" in texts
    for circle in root.iter(f"{SVG}circle"):
        assert 0 < float(circle.attrib["cx"]) < 2 * WIDTH
        assert 0 < float(circle.attrib["cy"]) < HEIGHT
    assert "http" not in plot(rows).replace("http://www.w3.org/2000/svg", "")
    assert plot([UNFIT]) == ""


def test_faster_is_lower_and_more_devices_further_right() -> None:
    root = ElementTree.fromstring(plot(ROWS))
    at = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in root.iter(f"{SVG}circle")][:3]
    assert [x for x, _ in at] == sorted(x for x, _ in at)
    assert [y for _, y in at] == sorted(y for _, y in at)


def test_without_all_prices_device_hours_are_plotted() -> None:
    assert "device-hours of" in plot([*ROWS, row(64, 8.0, price=None)])
    assert "price of" in plot(ROWS)
    assert plot([replace(ROWS[1], devices=8)])  # a single row


@pytest.mark.parametrize(("low", "high"), [(50, 110), (0.9, 9.5), (1, 1000), (1e-3, 1e4)])
def test_axes_have_round_values(low: float, high: float) -> None:
    values = _round_values(low, high)
    assert 2 <= len(values) <= MOST_LINES
    assert all(low <= value <= high for value in values)
