"""A sweep as one self-contained SVG: step time and cost against devices, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rpeg.report.svg import COLOURS, Drawing
from rpeg.search.sweep import STEPS, Row
from rpeg.units import count_text, seconds_text

WIDTH, HEIGHT = 480, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 40, 48
_LINE, _TARGET = 16, "#c00000"

MOST_LINES = 9
"""Horizontal lines of a panel, where there is a choice."""

_Point = tuple[float, float]


@dataclass(frozen=True)
class _Curve:
    name: str
    colour: str
    points: tuple[_Point, ...]


@dataclass(frozen=True)
class _Panel:
    """One diagram, from `x` pixels on: curves in data units, both axes logarithmic."""

    x: float
    title: str
    curves: tuple[_Curve, ...]
    text: Callable[[float], str]
    target: float | None = None
    ideal: bool = False

    @property
    def span(self) -> tuple[float, float, float, float]:
        xs = [x for curve in self.curves for x, _ in curve.points]
        ys = [y for curve in self.curves for _, y in curve.points]
        ys += [self.target] if self.target else []
        return min(xs) / 1.2, max(xs) * 1.2, min(ys) / 1.3, max(ys) * 1.3

    def at(self, x: float, y: float) -> _Point:
        """In pixels of the panel."""
        x0, x1, y0, y1 = self.span
        right = math.log(x / x0) / math.log(x1 / x0) * (WIDTH - _LEFT - _RIGHT)
        up = math.log(y / y0) / math.log(y1 / y0) * (HEIGHT - _TOP - _BOTTOM)
        return self.x + _LEFT + right, HEIGHT - _BOTTOM - up


def plot(rows: Sequence[Row], target_seconds: float | None = None) -> str:
    """The SVG's text. Rows without a plan are left out; "" where none has one."""
    series = _series(rows)
    if not series:
        return ""
    priced = all(row.outcome and row.outcome.price is not None for _, own in series for row in own)
    cost = f"{'price' if priced else 'device-hours'} of {STEPS:,} steps"
    panels = (
        _Panel(0, "step time", _curves(series, _step), seconds_text, target_seconds, ideal=True),
        _Panel(WIDTH, cost, _curves(series, _price if priced else _hours), count_text),
    )
    drawing = Drawing(len(panels) * WIDTH, HEIGHT + _LINE * (len(series) + 1))
    for panel in panels:
        _draw(drawing, panel)
    _legend(drawing, panels[0].curves)
    return drawing.to_text("step time and cost by number of devices")


def _series(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """(name, rows by devices) of those that differ in their number of devices alone."""
    planned = [row for row in rows if row.outcome is not None]
    parts = ("{}", "staleness {}", "{} samples a prompt", "responses of {:,.0f} tokens")
    keys = list(dict.fromkeys(row.series for row in planned))
    varying = [i for i in range(len(parts)) if len({key[i] for key in keys}) > 1] or [0]
    return [
        (
            ", ".join(parts[i].format(key[i]) for i in varying),
            sorted((row for row in planned if row.series == key), key=lambda row: row.devices),
        )
        for key in keys
    ]


def _curves(series: Sequence[tuple[str, list[Row]]], value: Callable[[Row], float]) -> tuple[_Curve, ...]:
    return tuple(
        _Curve(name, COLOURS[i % len(COLOURS)], tuple((row.devices, value(row)) for row in own))
        for i, (name, own) in enumerate(series)
    )


def _step(row: Row) -> float:
    return row.outcome.step_seconds if row.outcome else 0.0


def _price(row: Row) -> float:
    return row.outcome.price or 0.0 if row.outcome else 0.0


def _hours(row: Row) -> float:
    return row.device_hours or 0.0


def _draw(drawing: Drawing, panel: _Panel) -> None:
    x0, x1, y0, y1 = panel.span
    left, right = panel.at(x0, y0)[0], panel.at(x1, y0)[0]
    drawing.text(left, 24, panel.title, size=14)
    for x in _powers_of_two(x0, x1):
        px, _ = panel.at(x, y0)
        drawing.line(px, _TOP, px, HEIGHT - _BOTTOM)
        drawing.text(px, HEIGHT - _BOTTOM + 18, str(x), anchor="middle")
    for y in _round_values(y0, y1):
        _, py = panel.at(x0, y)
        drawing.line(left, py, right, py)
        drawing.text(left - 6, py + 4, panel.text(y), anchor="end")
    drawing.text((left + right) / 2, HEIGHT - 12, "devices", anchor="middle")
    if panel.target:
        _, py = panel.at(x0, panel.target)
        drawing.line(left, py, right, py, _TARGET, dashes="6 3")
        drawing.text(left + 4, py - 4, f"target {panel.text(panel.target)}", colour=_TARGET)
    for curve in panel.curves:
        _draw_curve(drawing, panel, curve)


def _draw_curve(drawing: Drawing, panel: _Panel, curve: _Curve) -> None:
    pixels = [panel.at(*point) for point in curve.points]
    if panel.ideal and len(pixels) > 1:
        (x, y), (last, _) = curve.points[0], curve.points[-1]
        end = max(y * x / last, panel.span[2])
        drawing.line(*pixels[0], *panel.at(x * y / end, end), curve.colour, dashes="2 4")
    drawing.curve(pixels, curve.colour)
    for (px, py), (devices, value) in zip(pixels, curve.points, strict=True):
        drawing.dot(px, py, curve.colour, f"{curve.name}: {devices:g} devices, {panel.text(value)}")


def _legend(drawing: Drawing, curves: Sequence[_Curve]) -> None:
    for i, curve in enumerate(curves):
        y = HEIGHT + _LINE * i + 6
        drawing.box(_LEFT, y - 9, 10, 10, curve.colour)
        drawing.text(_LEFT + 16, y, curve.name)
    last = HEIGHT + _LINE * len(curves) + 6
    drawing.text(_LEFT, last, "dotted: twice as fast on twice as many devices")


def _powers_of_two(low: float, high: float) -> list[int]:
    return [2**k for k in range(24) if low <= 2**k <= high]


def _round_values(low: float, high: float) -> list[float]:
    """As many round numbers as a panel has room for: all of one digit, or 1, 2 and 5 times powers of ten, or those."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    for digits in (range(1, 10), (1, 2, 5), (1,)):
        found = [d * 10.0**e for e in exponents for d in digits if low <= d * 10.0**e <= high]
        if len(found) <= MOST_LINES:
            break
    return found
