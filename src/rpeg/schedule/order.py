"""Lane orders from shifts, by list scheduling.

Orders are derived, not searched: within one period each lane runs next, of the items that are ready, the one with the
longest tail of work behind it (upward rank). The tail reaches into the next period: of two trainers the one that
generation waits for goes first. Ties break by name, so that the order depends on nothing else.

What rests in host memory stays on the devices no longer than it must: an offload goes as soon as it may; a reload not
before something that needs it waits for nothing else, and what was brought before is gone again, unless nothing could
go on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from rpeg.errors import PlanError
from rpeg.plan import Arc, ItemKind, Lane, Lowered, Slot, Turn

Duration = Mapping[Slot, float]
Offset = Mapping[tuple[Slot, int], float]


def list_order(
    lowered: Lowered, shifts: Mapping[Slot, int], durations_seconds: Duration, offsets_seconds: Offset
) -> tuple[Lane, ...]:
    """The order of every lane for one period.

    durations_seconds: of each slot. offsets_seconds: of each (generator, base part), from start to the part's leaving.
    Raises PlanError naming the slots that wait for each other where the shifts leave a cycle.
    """
    arcs, next_arcs = (
        [a for a in lowered.arcs if a.src != a.dst and a.delay + shifts[a.dst] - shifts[a.src] == distance]
        for distance in (0, 1)
    )
    alone = _upward_rank(lowered, arcs, durations_seconds, offsets_seconds, durations_seconds)
    floor = dict(durations_seconds)
    for arc in next_arcs:
        tail = _after(arc, durations_seconds, offsets_seconds) + alone[arc.dst]
        floor[arc.src] = max(floor[arc.src], tail)
    rank = _upward_rank(lowered, arcs, durations_seconds, offsets_seconds, floor)
    sequence = _simulate(lowered, arcs, rank, durations_seconds, offsets_seconds)
    lanes: dict[str, list[Turn]] = {lane: [] for lane in sorted(lowered.lanes)}
    for slot in sequence:
        for lane in lowered.tasks[slot].lanes:
            lanes[lane].append(Turn(slot, shifts[slot]))
    return tuple(Lane(name, tuple(turns)) for name, turns in lanes.items())


def _after(arc: Arc, durations: Duration, offsets: Offset) -> float:
    """Seconds from the start of an arc's source until the arc is satisfied."""
    return durations[arc.src] if arc.part is None else offsets[arc.src, arc.part]


def _upward_rank(
    lowered: Lowered, arcs: list[Arc], durations: Duration, offsets: Offset, floor: Duration
) -> dict[Slot, float]:
    """Longest time from a slot's start to the end of all that follows it over these arcs; at least its floor."""
    out: dict[Slot, list[Arc]] = {slot: [] for slot in lowered.tasks}
    waiting = dict.fromkeys(lowered.tasks, 0)
    for arc in arcs:
        out[arc.src].append(arc)
        waiting[arc.src] += 1
    into: dict[Slot, list[Arc]] = {slot: [] for slot in lowered.tasks}
    for arc in arcs:
        into[arc.dst].append(arc)
    ready = sorted(slot for slot, count in waiting.items() if count == 0)
    rank: dict[Slot, float] = {}
    while ready:
        slot = ready.pop()
        tail = max((_after(a, durations, offsets) + rank[a.dst] for a in out[slot]), default=0.0)
        rank[slot] = max(floor[slot], tail)
        for arc in into[slot]:
            waiting[arc.src] -= 1
            if waiting[arc.src] == 0:
                ready.append(arc.src)
    if len(rank) < len(lowered.tasks):
        stuck = ", ".join(str(s) for s in sorted(set(lowered.tasks) - set(rank))[:6])
        raise PlanError(f"with these shifts some items of a period wait for each other, among them {stuck}")
    return rank


def _simulate(
    lowered: Lowered, arcs: list[Arc], rank: Mapping[Slot, float], durations: Duration, offsets: Offset
) -> list[Slot]:
    """Slots in the order of their start when every lane greedily takes the ready one of highest rank."""
    period = _Period(lowered, arcs)
    events: list[tuple[float, int, str, Slot]] = []
    now = 0.0
    while len(period.sequence) < len(lowered.tasks) or events:
        ready = sorted(period.ready, key=lambda s: (s.kind is not ItemKind.OFFLOAD, -rank[s], s))
        for slot in _startable(period, ready, idle=not events):
            heapq.heappush(events, (now + durations[slot], 0, "end", slot))
            for i, arc in enumerate(period.out[slot]):
                heapq.heappush(events, (now + _after(arc, durations, offsets), i + 1, "arc", slot))
        now = events[0][0]
        # Everything that happens at one moment is known before the lanes choose.
        while events and events[0][0] == now:
            _, index, what, slot = heapq.heappop(events)
            if what == "end":
                period.end(slot)
            else:
                period.satisfy(period.out[slot][index - 1])
    return period.sequence


def _startable(period: _Period, ready: list[Slot], idle: bool) -> Iterator[Slot]:
    """Starts, in this order, what may; where nothing runs or may, the first reload that was put off."""
    put_off: list[Slot] = []
    for slot in ready:
        if not period.has_free_lanes(slot):
            continue
        if slot.kind is ItemKind.RELOAD and not period.wants(slot):
            put_off.append(slot)
            continue
        idle = False
        period.start(slot)
        yield slot
    if idle:
        period.start(put_off[0])
        yield put_off[0]


class _Period:
    """One period while it is put in order: what has started, what is ready, which lanes are free."""

    def __init__(self, lowered: Lowered, arcs: list[Arc]) -> None:
        self._lowered = lowered
        self.out: dict[Slot, list[Arc]] = {slot: [] for slot in lowered.tasks}
        self._waiting, self._beside_reloads = (dict.fromkeys(lowered.tasks, 0) for _ in range(2))
        for arc in arcs:
            self.out[arc.src].append(arc)
            self._count(arc, 1)
        self.ready = {slot for slot, count in self._waiting.items() if count == 0}
        self._free = dict.fromkeys(lowered.lanes, True)
        self._brought = dict.fromkeys(lowered.lanes, 0)  # rests that are on the devices of each lane
        self.sequence: list[Slot] = []

    def has_free_lanes(self, slot: Slot) -> bool:
        return all(self._free[lane] for lane in self._lowered.tasks[slot].lanes)

    def wants(self, reload: Slot) -> bool:
        """Whether something waits for it alone, and nothing else was brought to its lanes and is still there."""
        users = [arc.dst for arc in self.out[reload]]
        asked = not users or any(not self._beside_reloads[user] for user in users)
        return asked and not any(self._brought[lane] > 0 for lane in self._lowered.tasks[reload].lanes)

    def start(self, slot: Slot) -> None:
        self.ready.discard(slot)
        self.sequence.append(slot)
        for lane in self._lowered.tasks[slot].lanes:
            self._free[lane] = False
            self._brought[lane] += slot.kind is ItemKind.RELOAD

    def end(self, slot: Slot) -> None:
        for lane in self._lowered.tasks[slot].lanes:
            self._free[lane] = True
            self._brought[lane] -= slot.kind is ItemKind.OFFLOAD

    def satisfy(self, arc: Arc) -> None:
        self._count(arc, -1)
        if self._waiting[arc.dst] == 0:
            self.ready.add(arc.dst)

    def _count(self, arc: Arc, by: int) -> None:
        self._waiting[arc.dst] += by
        self._beside_reloads[arc.dst] += by * (arc.src.kind is not ItemKind.RELOAD)
