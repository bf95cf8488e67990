"""One steady step of a plan as a picture: what each group of devices does when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rpeg.errors import InputError
from rpeg.plan import Item, ItemKind, Plan
from rpeg.plan.lanes import lanes_of
from rpeg.report.svg import COLOURS, FAINT, INK, Drawing, fitted
from rpeg.report.words import device_groups, device_name, slot_words
from rpeg.sim import StageCosts, drain_steps, simulate, steady_steps
from rpeg.sim.facts import Facts
from rpeg.trace import Trace, fill_steps, step_ends
from rpeg.units import seconds_text

STEPS = 5
"""Steady steps that are simulated; the one of median length is drawn."""

MOST_ROWS = 8
"""Of a group of devices: of more that differ, the earliest to end generation, the last, and some between."""

_ALIKE = 300
"""Rows that differ by less than this part of the step are one."""

_LEFT, _RIGHT, _WIDTH, _ROW, _GAP = 150.0, 20.0, 1200.0, 22.0, 6.0
_TOP, _LINE = 58.0, 20.0
_MOVES = "#5b5b5b"


@dataclass(frozen=True)
class Piece:
    """An item's time in the window, in seconds from its start. behind: steps that it is behind the one that ends."""

    item: Item
    start_seconds: float
    end_seconds: float
    behind: int


@dataclass(frozen=True)
class Row:
    """Devices that do the same at the same times."""

    devices: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Picture:
    """groups: by the stages of each, its rows, and how many devices have a row that was left out."""

    plan: Plan
    seconds: float
    groups: tuple[tuple[tuple[str, ...], tuple[Row, ...], int], ...]


def picture_of(plan: Plan, facts: Facts, seed: int = 0) -> Picture:
    """Simulates a few steps and takes the median one."""
    steps = fill_steps(plan) + STEPS + drain_steps(plan)
    return of_trace(simulate(plan, StageCosts(plan, facts), steps, seed, samples=False))


def of_trace(trace: Trace) -> Picture:
    """From the end of one step's training to that of the next. InputError where no step is steady."""
    ends = step_ends(trace)
    lengths = sorted((ends[step] - ends[step - 1], step) for step in steady_steps(trace) if step - 1 in ends)
    if not lengths:
        raise InputError("the trace has no steady step to draw; simulate more steps")
    seconds, step = lengths[len(lengths) // 2]
    pieces = _pieces(trace, ends[step] - seconds, ends[step], step)
    return Picture(trace.plan, seconds, tuple(_groups(trace.plan, pieces, seconds / _ALIKE)))


def svg(picture: Picture) -> str:
    """The picture as self-contained SVG."""
    rows = sum(len(rows) for _, rows, _ in picture.groups)
    left_out = sum(1 for _, _, more in picture.groups if more)
    colours = _colours(picture)
    legend_rows = -(-len(colours) // 5)
    height = _TOP + rows * (_ROW + _GAP) + (len(picture.groups) + left_out) * _LINE + 50 + legend_rows * _LINE
    drawing = Drawing(_WIDTH, height)
    title = f"One step of {picture.plan.graph.name} on {picture.plan.cluster.name}: {seconds_text(picture.seconds)}"
    drawing.text(10, 24, title, size=16)
    drawing.text(10, 42, f"structure: {', '.join(picture.plan.applied) or 'as the algorithm says'}")
    y = _TOP
    for stages, rows_of, more in picture.groups:
        y = _draw_group(drawing, picture, colours, stages, rows_of, more, y)
    _draw_axis(drawing, picture.seconds, y)
    _draw_legend(drawing, colours, y + 44)
    return drawing.to_text(title)


def _pieces(trace: Trace, start: float, end: float, step: int) -> dict[str, tuple[Piece, ...]]:
    found: dict[str, list[Piece]] = {}
    for span in trace.spans:
        a, b = max(span.start_seconds, start), min(span.end_seconds, end)
        if b > a:
            piece = Piece(span.item, a - start, b - start, step - span.item.step)
            found.setdefault(span.lane, []).append(piece)
    return {lane: tuple(sorted(own, key=lambda p: p.start_seconds)) for lane, own in found.items()}


def _groups(
    plan: Plan, pieces: Mapping[str, tuple[Piece, ...]], alike_seconds: float
) -> Iterator[tuple[tuple[str, ...], tuple[Row, ...], int]]:
    devices = lanes_of(plan.assignments).devices
    for group in device_groups(plan):
        rows: list[Row] = []
        for lane, ids in devices.items():
            if ids[0] in group.ids:
                own = Row(ids, pieces.get(lane, ()))
                place = next((i for i, row in enumerate(rows) if _are_alike(row, own, alike_seconds)), None)
                if place is None:
                    rows.append(own)
                else:
                    rows[place] = Row((*rows[place].devices, *ids), rows[place].pieces)
        shown = _few(rows)
        left_out = sum(len(row.devices) for row in rows) - sum(len(row.devices) for row in shown)
        yield group.stages, tuple(shown), left_out


def _are_alike(a: Row, b: Row, seconds: float) -> bool:
    """Whether they do the same at the same times, but for so many seconds."""
    return len(a.pieces) == len(b.pieces) and all(
        (p.item.name, p.behind) == (q.item.name, q.behind)
        and abs(p.start_seconds - q.start_seconds) < seconds
        and abs(p.end_seconds - q.end_seconds) < seconds
        for p, q in zip(a.pieces, b.pieces, strict=True)
    )


def _few(rows: Sequence[Row]) -> list[Row]:
    """By the end of their first item, at equal distances."""
    ordered = sorted(rows, key=lambda row: (row.pieces[0].end_seconds if row.pieces else 0.0, row.devices))
    if len(ordered) <= MOST_ROWS:
        return sorted(ordered, key=lambda row: row.devices)
    return [ordered[i * (len(ordered) - 1) // (MOST_ROWS - 1)] for i in range(MOST_ROWS)]


def _colours(picture: Picture) -> dict[str, str]:
    """Of stages; what is moved has one colour."""
    names = [stage.name for stage in picture.plan.graph.stages if stage.models]
    return {**{name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}, "moves of weights": _MOVES}


def _draw_group(
    drawing: Drawing,
    picture: Picture,
    colours: Mapping[str, str],
    stages: Sequence[str],
    rows: Sequence[Row],
    more: int,
    y: float,
) -> float:
    """The y below it."""
    drawing.text(10, y + 14, fitted(", ".join(stages), _WIDTH - 20), colour="#666666")
    y += _LINE
    scale = (_WIDTH - _LEFT - _RIGHT) / picture.seconds
    for row in rows:
        drawing.text(10, y + 15, fitted(device_name(row.devices), _LEFT - 15))
        drawing.box(_LEFT, y, picture.seconds * scale, _ROW, "#f2f2f2", "idle")
        for piece in row.pieces:
            _draw_piece(drawing, piece, colours, scale, y)
        y += _ROW + _GAP
    if more:
        drawing.text(10, y + 12, f"and {more} devices whose rows lie between these", colour="#666666")
        y += _LINE
    return y


def _draw_piece(drawing: Drawing, piece: Piece, colours: Mapping[str, str], scale: float, y: float) -> None:
    words = slot_words(piece.item.slot)
    seconds = piece.end_seconds - piece.start_seconds
    other = f" (of the step {'before' if piece.behind > 0 else 'after'})" if piece.behind else ""
    colour = colours[piece.item.name] if piece.item.kind is ItemKind.RUN else _MOVES
    x, width = _LEFT + piece.start_seconds * scale, seconds * scale
    drawing.box(x, y, width, _ROW, colour, f"{words}{other}: {seconds_text(seconds)}")
    drawing.text(x + 4, y + 15, fitted(words, width - 8), colour="#ffffff")


def _draw_axis(drawing: Drawing, seconds: float, y: float) -> None:
    width = _WIDTH - _LEFT - _RIGHT
    drawing.line(_LEFT, y + 4, _LEFT + width, y + 4, INK)
    for tenth in range(0, 11, 2):
        x = _LEFT + width * tenth / 10
        drawing.line(x, y + 4, x, y + 9, INK)
        anchor = "end" if tenth == 10 else "middle"
        drawing.text(x, y + 22, seconds_text(seconds * tenth / 10), anchor=anchor)
    drawing.line(_LEFT, _TOP, _LEFT, y + 4, FAINT)


def _draw_legend(drawing: Drawing, colours: Mapping[str, str], y: float) -> None:
    for place, (name, colour) in enumerate(colours.items()):
        x, line = 10 + place % 5 * 230.0, y + place // 5 * _LINE
        drawing.box(x, line - 10, 14, 14, colour)
        drawing.text(x + 20, line + 2, fitted(name, 200))
