"""The maximum cycle ratio of an event graph, by Howard's policy iteration.

Each node picks one arc out of it. The picks lead every node into one cycle, whose ratio of weight to height it takes,
with a potential along the way. A node that can reach a cycle of a higher ratio, or at the same ratio a higher
potential, picks that arc instead, until none can (Cochet-Terrasson, Cohen, Gaubert, McGettrick, Quadrat: Numerical
computation of spectral elements in max-plus algebra, 1998; in practice the fastest by Dasdan: Experimental analysis of
the fastest optimum cycle ratio and mean algorithms, ACM TODAES 9(4), 2004). The ratio is that of one cycle, summed
exactly: rounding decides at most between cycles that are equal to the last digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

import numpy as np

from rpeg.plan import Slot
from rpeg.sim.events import EventGraph, Floats, Ints

_TOLERANCE = 4e-15
"""Of the largest potential or weight times the root of the number of nodes: improvements below are rounding of sums."""

_ROUNDS = 1000
"""More than any graph was seen to need by far (a dozen): so that rounding cannot keep it going for ever."""


@dataclass(frozen=True, slots=True)
class Link:
    """An arc of a critical cycle: after `seconds` of `src`, and `periods` later, `dst` may be commanded.

    why: the datum, `order`, or the lane whose turns they are.
    """

    src: Slot
    dst: Slot
    seconds: float
    periods: int
    why: str


@dataclass(frozen=True, slots=True)
class CycleRatio:
    """step_seconds: of the steady state. cycle: what limits it, link after link; () where nothing repeats."""

    step_seconds: float
    cycle: tuple[Link, ...]

    @property
    def steps(self) -> int:
        """Periods that the cycle spans."""
        return sum(link.periods for link in self.cycle)


def cycle_ratio(graph: EventGraph) -> CycleRatio:
    """The steady step time of a graph in which every cycle has a height (`events` sees to that)."""
    alive = _on_a_way_to_a_cycle(graph)
    arcs = np.flatnonzero(alive[graph.src] & alive[graph.dst])
    if not len(arcs):
        return CycleRatio(0.0, ())
    arcs = arcs[np.argsort(graph.src[arcs], kind="stable")]
    found = _Howard(
        len(graph.nodes), graph.src[arcs], graph.dst[arcs], graph.weight[arcs], graph.height[arcs]
    )
    cycle = [int(arcs[i]) for i in found.critical()]
    seconds, height = fsum(graph.weight[i] for i in cycle), int(graph.height[cycle].sum())
    return CycleRatio(seconds / (height * graph.steps), tuple(_link(graph, i) for i in cycle))


def _link(graph: EventGraph, arc: int) -> Link:
    (src, first), (dst, second) = graph.nodes[graph.src[arc]], graph.nodes[graph.dst[arc]]
    periods = int(graph.height[arc]) * graph.steps + second - first
    return Link(src, dst, float(graph.weight[arc]), periods, graph.why[arc])


def _on_a_way_to_a_cycle(graph: EventGraph) -> np.typing.NDArray[np.bool_]:
    """Nodes from which a cycle can be reached: those left when nodes without a way on are taken off one by one."""
    alive = np.ones(len(graph.nodes), dtype=bool)
    while True:
        live = alive[graph.src] & alive[graph.dst]
        on = np.zeros_like(alive)
        on[graph.src[live]] = True
        if np.array_equal(on, alive):
            return alive
        alive = on


class _Howard:
    """Policy iteration over arcs in the order of their source. Nodes without an arc out are never looked at."""

    def __init__(self, nodes: int, src: Ints, dst: Ints, weight: Floats, height: Ints) -> None:
        self._src, self._dst, self._weight, self._height = src, dst, weight, height
        self._own, self._first = np.unique(src, return_index=True)  # nodes with an arc, and their first arc
        self._sizes = np.diff(np.append(self._first, len(src)))
        self._largest = max(1e-300, float(np.abs(weight).max()))
        self._epsilon = 0.0  # set by `critical`
        self._ratio, self._value = np.zeros(nodes), np.zeros(nodes)
        self._pick = np.zeros(nodes, dtype=np.int64)
        self._pick[self._own] = self._best(weight)[1]

    def critical(self) -> list[int]:
        """The arcs of a cycle of the greatest ratio."""
        for _ in range(_ROUNDS + len(self._pick)):
            cycles = self._evaluate()
            largest = max(self._largest, float(np.abs(self._value).max()))
            self._epsilon = _TOLERANCE * len(self._own) ** 0.5 * largest
            if not (self._improve_ratio() or self._improve_value()):
                return max(cycles, key=lambda found: found[0])[1]
        raise ArithmeticError(f"the cycle ratio of {len(self._own)} items did not settle: rounding")

    def _evaluate(self) -> list[tuple[float, list[int]]]:
        """Ratios and potentials of the present picks; their cycles, as (ratio, arcs).

        One node of each cycle keeps its potential, so that none ever falls.
        """
        pick, dst = self._pick.tolist(), self._dst.tolist()
        weight, height = self._weight.tolist(), self._height.tolist()
        ratio, value = self._ratio.tolist(), self._value.tolist()
        seen = [-1] * len(pick)
        cycles = []
        for root in self._own.tolist():
            path, node = [], root
            while seen[node] < 0:
                seen[node] = root
                path.append(node)
                node = dst[pick[node]]
            if seen[node] == root:  # a new cycle, from `node` to the end of the path
                arcs = [pick[n] for n in path[path.index(node) :]]
                ratio[node] = fsum(weight[a] for a in arcs) / sum(height[a] for a in arcs)
                cycles.append((ratio[node], arcs))
            end = node
            for node in reversed(path):
                if node != end or seen[end] != root:
                    arc = pick[node]
                    ratio[node] = ratio[dst[arc]]
                    value[node] = weight[arc] - ratio[node] * height[arc] + value[dst[arc]]
        self._ratio, self._value = np.array(ratio), np.array(value)
        return cycles

    def _improve_ratio(self) -> bool:
        """Nodes that can reach a cycle of a higher ratio turn to it."""
        best, arc = self._best(self._ratio[self._dst])
        return self._turn(best > self._ratio[self._own] + self._epsilon, arc)

    def _improve_value(self) -> bool:
        """Nodes turn to arcs of their own ratio with a higher potential."""
        own = self._ratio[self._src]
        there = self._weight - own * self._height + self._value[self._dst]
        there[self._ratio[self._dst] < own - self._epsilon] = -np.inf
        best, arc = self._best(there)
        return self._turn(best > self._value[self._own] + self._epsilon, arc)

    def _turn(self, better: np.typing.NDArray[np.bool_], arc: Ints) -> bool:
        self._pick[self._own[better]] = arc[better]
        return bool(better.any())

    def _best(self, score: Floats) -> tuple[Floats, Ints]:
        """Of each node the greatest score of its arcs, and the first arc that has it."""
        best = np.maximum.reduceat(score, self._first)
        places = np.where(score == np.repeat(best, self._sizes), np.arange(len(score)), len(score))
        return best, np.minimum.reduceat(places, self._first)
