"""Cost trees as tables: what takes how long, and how the parts make up the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from rpeg.cost import Cost
from rpeg.report.tables import percent, table
from rpeg.units import bytes_text, count_text

LEGEND = (
    "Parts add up to what they are indented under; of the slowest: its parts run side by side, and the slowest counts; "
    "overlapping: they run side by side in part. 8 × 1.24: eight like this, each so long. bound: what the time would "
    "fall with. measured: the share of the time that rests on measurements."
)
MOST_ALIKE = 3
"""Parts of one name that differ: more of them are one line beside the longest."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Line:
    """A row of a tree. count: so many parts are like it, each of these seconds."""

    depth: int
    name: str
    cost: Cost
    count: int = 1


def tree(cost: Cost, depth: int | None = None) -> Table:
    """A row for each part, down to `depth` levels below the root (None: all). Parts that cost the same are one row."""
    rows = [line for line in lines(cost) if depth is None or line.depth <= depth]
    unit, factor, digits = _unit(cost.seconds)
    return table(
        ("part", f">{unit}", "bound", ">FLOP", ">bytes", ">measured"),
        (_cells(line, factor, digits) for line in rows),
    )


def lines(cost: Cost) -> Iterator[Line]:
    """The rows of a tree, parents before children."""
    yield from _below(Line(0, _named(cost), cost))


def _below(line: Line) -> Iterator[Line]:
    yield line
    groups: dict[Cost, int] = {}
    for child in line.cost.children:
        groups[child] = groups.get(child, 0) + 1
    by_name: dict[str, list[tuple[Cost, int]]] = {}
    for child, count in groups.items():
        by_name.setdefault(child.name, []).append((child, count))
    for same in by_name.values():
        shown, rest = (same, []) if len(same) <= MOST_ALIKE else _longest_first(same)
        for child, count in shown:
            yield from _below(Line(line.depth + 1, _named(child), child, count))
        if rest:
            yield _others(line, rest)


def _longest_first(same: list[tuple[Cost, int]]) -> tuple[list[tuple[Cost, int]], list[tuple[Cost, int]]]:
    longest = max(same, key=lambda pair: pair[0].seconds)
    return [longest], [pair for pair in same if pair is not longest]


def _others(parent: Line, rest: Sequence[tuple[Cost, int]]) -> Line:
    """Those of one name that are not shown one by one, with their sum where sums matter."""
    count = sum(count for _, count in rest)
    least, most = (pick(child.seconds for child, _ in rest) for pick in (min, max))
    unit, factor, digits = _unit(parent.cost.seconds)
    spread = f"… {count} others, {least * factor:.{digits}f} to {most * factor:.{digits}f} {unit}"
    total = Cost(
        spread,
        sum(child.seconds * n for child, n in rest),
        sum(child.flops * n for child, n in rest),
        sum(child.bytes * n for child, n in rest),
        rest[0][0].bound,
        sum(child.measured_seconds * n for child, n in rest),
    )
    together = combination(parent.cost) == ""
    return Line(parent.depth + 1, spread + (", together" if together else ""), total, 1 if together else 0)


def combination(cost: Cost) -> str:
    """How a node's seconds come from its parts: "" where they add up."""
    seconds = [child.seconds for child in cost.children]
    if not seconds or abs(sum(seconds) - cost.seconds) <= _ROUNDING * max(cost.seconds, 1e-300):
        return ""
    slowest = abs(max(seconds) - cost.seconds) <= _ROUNDING * cost.seconds
    return "of the slowest" if slowest else "overlapping"


def _named(cost: Cost) -> str:
    calls = f" × {cost.count}" if cost.count > 1 else ""
    how = combination(cost)
    return cost.name + calls + (f" ({how})" if how else "")


def _cells(line: Line, factor: float, digits: int) -> tuple[str, ...]:
    c = line.cost
    seconds = f"{c.seconds * factor:.{digits}f}"
    many = f"{line.count} × " if line.count > 1 else ""
    return (
        "  " * line.depth + line.name,
        many + seconds if line.count else "",
        c.bound,
        count_text(c.flops) if c.flops else "",
        bytes_text(c.bytes) if c.bytes else "",
        percent(c.measured_share),
    )


def _unit(seconds: float) -> tuple[str, float, int]:
    """(name, units a second, decimals): one for a whole tree, so that the column adds up."""
    for least, unit, factor, digits in ((1.0, "s", 1.0, 4), (1e-3, "ms", 1e3, 4), (0.0, "µs", 1e6, 3)):
        if seconds >= least:
            return unit, factor, digits
    raise ValueError(f"{seconds} seconds")
