"""`Cost`: what something takes and why, as a tree that prints like a query plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from rpeg.units import bytes_text, count_text, seconds_text

Bound = Literal["compute", "memory", "network", "launch", "host"]


@dataclass(frozen=True)
class Cost:
    """A node: its name, seconds, and the work done in them.

    flops: floating-point operations. bytes: moved over the memory bus or, where bound is network, the link.
    bound: what the time would fall with. measured_seconds: the part of seconds that rests on a calibration table.
    count: so many equal or like calls are summed in this node.
    """

    name: str
    seconds: float
    flops: float = 0.0
    bytes: float = 0.0
    bound: Bound = "compute"
    measured_seconds: float = 0.0
    count: int = 1
    children: tuple[Cost, ...] = ()

    @property
    def measured_share(self) -> float:
        """The share of the seconds that rests on measurement, 1.0 where there are none."""
        return self.measured_seconds / self.seconds if self.seconds > 0 else 1.0

    def scaled(self, factor: float) -> Cost:
        """The cost of `factor` times as much of the same."""
        return replace(
            self,
            seconds=self.seconds * factor,
            flops=self.flops * factor,
            bytes=self.bytes * factor,
            measured_seconds=self.measured_seconds * factor,
            children=tuple(child.scaled(factor) for child in self.children),
        )

    def find(self, name: str) -> Cost | None:
        """The first node of this name, depth first."""
        return next((node for _, node in self.walk() if node.name == name), None)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, Cost]]:
        """Each node with its depth, parents before children."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    def text(self, depth: int | None = None) -> str:
        """One line a node, children indented, down to `depth` levels below this one (None: all)."""
        nodes = [(d, node) for d, node in self.walk() if depth is None or d <= depth]
        width = max(2 * d + len(node.name) for d, node in nodes)
        return "\n".join(_line(d, node, width) for d, node in nodes)

    def __str__(self) -> str:
        return self.text()


def sequence(name: str, children: Iterable[Cost]) -> Cost:
    """Children one after another: everything adds up, the longest says what binds."""
    parts = tuple(children)
    seconds = flops = moved = measured = 0.0
    by_bound: dict[Bound, float] = {}
    for part in parts:
        own, bound = part.seconds, part.bound
        seconds += own
        flops += part.flops
        moved += part.bytes
        measured += part.measured_seconds
        by_bound[bound] = by_bound.get(bound, 0.0) + own
    heaviest: Bound = max(by_bound, key=by_bound.__getitem__) if by_bound else "compute"
    return Cost(name, seconds, flops, moved, heaviest, measured, 1, parts)


def parallel(name: str, children: Iterable[Cost]) -> Cost:
    """Children at the same time on as many devices: work adds up, the slowest gives the time."""
    parts = tuple(children)
    slowest = max(parts, key=lambda part: part.seconds, default=Cost(name, 0.0))
    return Cost(
        name,
        slowest.seconds,
        sum(part.flops for part in parts),
        sum(part.bytes for part in parts),
        slowest.bound,
        slowest.measured_seconds,
        children=parts,
    )


def _line(depth: int, node: Cost, width: int) -> str:
    indent = "  " * depth
    facts = [f"{seconds_text(node.seconds):>9}", f"{node.bound:<7}"]
    if node.count > 1:
        facts.append(f"× {node.count}")
    if node.flops:
        facts.append(f"{count_text(node.flops)}FLOP")
    if node.bytes:
        facts.append(bytes_text(node.bytes))
    facts.append(f"{node.measured_share:.0%} measured")
    return f"{indent}{node.name:<{width - len(indent)}}  {'  '.join(facts)}"
