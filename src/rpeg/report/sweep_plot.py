"""A sweep as one self-contained SVG: step time and cost against devices, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from rpeg.search.sweep import STEPS, Row
from rpeg.units import count_text, seconds_text

WIDTH, HEIGHT = 480, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 40, 48
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
_LINE = 16

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
    """One diagram: curves in data units, both axes logarithmic."""

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
        return _LEFT + right, HEIGHT - _BOTTOM - up


def plot(rows: Sequence[Row], target_seconds: float | None = None) -> str:
    """The SVG's text. Rows without a plan are left out; "" where none has one."""
    series = _series(rows)
    if not series:
        return ""
    priced = all(row.outcome and row.outcome.price is not None for _, own in series for row in own)
    panels = (
        _Panel("step time", _curves(series, _step), seconds_text, target_seconds, ideal=True),
        _Panel(
            f"{'price' if priced else 'device-hours'} of {STEPS:,} steps",
            _curves(series, _price if priced else _hours),
            count_text,
        ),
    )
    height = HEIGHT + _LINE * (len(series) + 1)
    drawn = [
        f'<g transform="translate({i * WIDTH} 0)">{"".join(_drawn(p))}</g>' for i, p in enumerate(panels)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH}" height="{height}" '
        f'viewBox="0 0 {2 * WIDTH} {height}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{"".join(drawn)}\n{"".join(_legend(panels[0]))}</svg>\n'
    )


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
        _Curve(name, _COLOURS[i % len(_COLOURS)], tuple((row.devices, value(row)) for row in own))
        for i, (name, own) in enumerate(series)
    )


def _step(row: Row) -> float:
    return row.outcome.step_seconds if row.outcome else 0.0


def _price(row: Row) -> float:
    return row.outcome.price or 0.0 if row.outcome else 0.0


def _hours(row: Row) -> float:
    return row.device_hours or 0.0


def _drawn(panel: _Panel) -> Iterator[str]:
    x0, x1, y0, y1 = panel.span
    yield f'<text x="{_LEFT}" y="24" font-size="14">{escape(panel.title)}</text>'
    for x in _powers_of_two(x0, x1):
        px, _ = panel.at(x, y0)
        yield _line((px, _TOP), (px, HEIGHT - _BOTTOM), "#ddd")
        yield f'<text x="{px:.1f}" y="{HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x}</text>'
    for y in _round_values(y0, y1):
        _, py = panel.at(x0, y)
        yield _line((_LEFT, py), (WIDTH - _RIGHT, py), "#ddd")
        yield f'<text x="{_LEFT - 6}" y="{py + 4:.1f}" text-anchor="end">{escape(panel.text(y))}</text>'
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">devices</text>'
    if panel.target:
        _, py = panel.at(x0, panel.target)
        yield _line((_LEFT, py), (WIDTH - _RIGHT, py), "#c00", "6 3")
        yield f'<text x="{_LEFT + 4}" y="{py - 4:.1f}" fill="#c00">target {escape(panel.text(panel.target))}</text>'
    for curve in panel.curves:
        yield from _curve(panel, curve)


def _curve(panel: _Panel, curve: _Curve) -> Iterator[str]:
    pixels = [panel.at(*point) for point in curve.points]
    if panel.ideal and len(pixels) > 1:
        (x, y), (last, _) = curve.points[0], curve.points[-1]
        end = max(y * x / last, panel.span[2])
        yield _line(pixels[0], panel.at(x * y / end, end), curve.colour, "2 4")
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in pixels)
    yield f'<polyline points="{path}" fill="none" stroke="{curve.colour}" stroke-width="2"/>'
    for (x, y), (devices, value) in zip(pixels, curve.points, strict=True):
        said = escape(f"{curve.name}: {devices:g} devices, {panel.text(value)}")
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{curve.colour}"><title>{said}</title></circle>'


def _legend(panel: _Panel) -> Iterator[str]:
    for i, curve in enumerate(panel.curves):
        y = HEIGHT + _LINE * i + 6
        yield f'<rect x="{_LEFT}" y="{y - 9}" width="10" height="10" fill="{curve.colour}"/>'
        yield f'<text x="{_LEFT + 16}" y="{y}">{escape(curve.name)}</text>'
    y = HEIGHT + _LINE * len(panel.curves) + 6
    yield f'<text x="{_LEFT}" y="{y}" fill="#666">dotted: twice as fast on twice as many devices</text>'


def _line(a: _Point, b: _Point, colour: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" stroke="{colour}"{dashed}/>'
    )


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
