"""A plan as a timed event graph.

A node is an item of one period: its value is the time of its command. An arc says that its destination is not
commanded before its source was, plus the arc's seconds: those from the source's command to its end, or to the leaving
of a base part. Arcs are the plan's own (data, weights, order), the consecutive turns of each lane, and each lane's
return from its last turn to the first of the next period. `height` counts the periods that an arc crosses.

Where a stage fires every n-th step a period here is as many of the plan's periods as the least common multiple of all
such n. Without `fill` and with fixed seconds the steady step time of a plan is the maximum cycle ratio of this graph
(Baccelli, Cohen, Olsder, Quadrat: Synchronization and Linearity, 1992, theorem 2.82 and section 3.7), see `howard`.
The fill of a run, in which a transfer has nothing to bring yet, is not part of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import lcm

import numpy as np
import numpy.typing as npt

from rpeg.errors import PlanError
from rpeg.plan import Arc, Lane, Lowered, Slot

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Times = tuple[Mapping[Slot, float], Mapping[tuple[Slot, int], float]]
"""(seconds from each item's command to its end, from each generator's command to the leaving of a base part)."""

_Node = tuple[Slot, int]
_Key = tuple[Slot, int | None]
_Row = tuple[int, int, int, int, str, int]


@dataclass(frozen=True)
class EventGraph:
    """The arrays of a timed event graph, all of the length of its arcs.

    nodes: (slot, which of the `steps` plan periods of one period of the graph). src, dst: positions in `nodes`.
    weight: seconds. height: periods of the graph that an arc crosses, 0 or more. why: the datum, `order`, or the lane.
    steps: steps of training in a period of the graph.
    """

    nodes: tuple[_Node, ...]
    src: Ints
    dst: Ints
    weight: Floats
    height: Ints
    why: tuple[str, ...]
    steps: int


@dataclass(frozen=True)
class Events:
    """The event graph of a plan before it has times.

    keys: what the seconds of an arc are: of a slot to its end (part None), or to a part's leaving. key: of each arc,
    its position in `keys`. source: of each arc, the plan's arc that it comes from; -1 for turns of lanes.
    """

    nodes: tuple[_Node, ...]
    src: Ints
    dst: Ints
    height: Ints
    keys: tuple[_Key, ...]
    key: Ints
    why: tuple[str, ...]
    source: Ints
    arcs: tuple[Arc, ...]
    steps: int

    def seconds(self, times: Times) -> Floats:
        """Of each key, in order."""
        durations, offsets = times
        return np.array(
            [durations[s] if p is None else offsets[s, p] for s, p in self.keys], dtype=np.float64
        )

    def timed(self, times: Times, absent: Collection[Arc] = ()) -> EventGraph:
        """With these times, and without the plan's arcs that this draw of lengths makes void (`if_members`)."""
        weight = self.seconds(times)[self.key] if self.keys else np.zeros(0)
        graph = EventGraph(self.nodes, self.src, self.dst, weight, self.height, self.why, self.steps)
        if not absent:
            return graph
        void = np.array([*(arc in absent for arc in self.arcs), False])
        keep = np.flatnonzero(~void[self.source])
        why = tuple(self.why[i] for i in keep)
        return replace(
            graph,
            src=self.src[keep],
            dst=self.dst[keep],
            weight=weight[keep],
            height=self.height[keep],
            why=why,
        )

    @cached_property
    def uncertain(self) -> tuple[Arc, ...]:
        """The plan's arcs that wait only where the source holds a member."""
        return tuple(arc for arc in self.arcs if arc.if_members)


def events(lowered: Lowered, shifts: Mapping[Slot, int], order: Sequence[Lane] = ()) -> Events:
    """The event graph of lowered items; without an `order` that of their arcs alone.

    Raises PlanError naming the items that wait for each other within a period: they would never start.
    """
    return _Builder(lowered, shifts).build(order)


class _Builder:
    """Collects nodes, and arcs once each: replicas and lanes of a gang repeat them."""

    def __init__(self, lowered: Lowered, shifts: Mapping[Slot, int]) -> None:
        self._lowered, self._shifts = lowered, shifts
        self._steps = lcm(*(task.every for task in lowered.tasks.values()))
        nodes = ((slot, period) for slot in lowered.tasks for period in self._fires(slot))
        self._nodes: dict[_Node, int] = {node: i for i, node in enumerate(nodes)}
        self._keys: dict[_Key, int] = {}
        self._rows: dict[tuple[int, int, int, int, bool], _Row] = {}

    def build(self, order: Sequence[Lane]) -> Events:
        for number, arc in enumerate(self._lowered.arcs):
            self._add_arc(number, arc)
        for lane in {lane.turns: lane for lane in reversed(order)}.values():  # lanes of a gang are alike
            self._add_lane(lane)
        rows = tuple(self._rows.values())
        src, dst, height, key, source = (
            np.array([row[i] for row in rows], dtype=np.int64) for i in (0, 1, 2, 3, 5)
        )
        nodes, why = tuple(self._nodes), tuple(row[4] for row in rows)
        _check(nodes, src, dst, height)
        arcs, keys = self._lowered.arcs, tuple(self._keys)
        return Events(nodes, src, dst, height, keys, key, why, source, arcs, self._steps)

    def _fires(self, slot: Slot) -> Iterator[int]:
        """The plan's periods, of one period of the graph, in which a slot runs."""
        every, shift = self._lowered.tasks[slot].every, self._shifts.get(slot, 0)
        return (p for p in range(self._steps) if (p - shift) % every == 0)

    def _add_arc(self, number: int, arc: Arc) -> None:
        every = self._lowered.tasks[arc.src].every
        src_shift, dst_shift = self._shifts.get(arc.src, 0), self._shifts.get(arc.dst, 0)
        for period in self._fires(arc.dst):
            step = period - dst_shift - arc.delay
            step -= step % every  # between firings the state is carried over
            crossed, place = divmod(step + src_shift, self._steps)
            if crossed > 0 or (crossed == 0 and place > period):
                raise PlanError(
                    f"{arc.dst} needs {arc.why} of {arc.src} in an earlier period; raise its shift"
                )
            self._add((arc.src, place), (arc.dst, period), -crossed, (arc.src, arc.part), arc.why, number)

    def _add_lane(self, lane: Lane) -> None:
        turns = [
            (turn.slot, period)
            for period in range(self._steps)
            for turn in lane.turns
            if (turn.slot, period) in self._nodes
        ]
        for first, second in pairwise(turns):
            self._add(first, second, 0, (first[0], None), lane.name, -1)
        if turns:
            self._add(turns[-1], turns[0], 1, (turns[-1][0], None), lane.name, -1)

    def _add(self, src: _Node, dst: _Node, height: int, key: _Key, why: str, number: int) -> None:
        ends, timed = (self._nodes[src], self._nodes[dst]), self._keys.setdefault(key, len(self._keys))
        sure = number < 0 or not self._lowered.arcs[number].if_members
        self._rows.setdefault((*ends, height, timed, sure), (*ends, height, timed, why, number))


def _check(nodes: tuple[_Node, ...], src: Ints, dst: Ints, height: Ints) -> None:
    """Raises PlanError where arcs of no height have a cycle."""
    after: list[list[int]] = [[] for _ in nodes]
    waiting = [0] * len(nodes)
    for a, b, h in zip(src.tolist(), dst.tolist(), height.tolist(), strict=True):
        if h == 0:
            after[a].append(b)
            waiting[b] += 1
    ready = [node for node, count in enumerate(waiting) if count == 0]
    for node in ready:  # grows while it is gone through
        for other in after[node]:
            waiting[other] -= 1
            if waiting[other] == 0:
                ready.append(other)
    stuck = {node for node, count in enumerate(waiting) if count}
    if stuck:
        names = " → ".join(str(nodes[i][0]) for i in _cycle(after, stuck))
        raise PlanError(f"these wait for each other in one period, which would never end: {names}")


def _cycle(after: list[list[int]], stuck: set[int]) -> list[int]:
    """A cycle among nodes that each wait for another of them, its first node again at its end."""
    before = {b: a for a in sorted(stuck, reverse=True) for b in after[a] if b in stuck}
    path = [min(stuck)]
    while before[path[-1]] not in path:
        path.append(before[path[-1]])
    first = before[path[-1]]
    return [first, *reversed(path[path.index(first) :])]
