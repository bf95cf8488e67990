"""Lane orders from shifts, by list scheduling.

Orders are derived, not searched: within one period each lane runs next, of the items that are ready, the one with the
longest tail of work behind it (upward rank). The tail reaches into the next period: of two trainers the one that
generation waits for goes first. Ties break by name, so that the order depends on nothing else.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from rpeg.errors import PlanError
from rpeg.plan import Arc, Lane, Lowered, Slot, Turn

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
    out: dict[Slot, list[Arc]] = {slot: [] for slot in lowered.tasks}
    waiting = dict.fromkeys(lowered.tasks, 0)
    for arc in arcs:
        out[arc.src].append(arc)
        waiting[arc.dst] += 1
    ready = {slot for slot, count in waiting.items() if count == 0}
    free = dict.fromkeys(lowered.lanes, True)
    events: list[tuple[float, int, str, Slot]] = []
    sequence: list[Slot] = []
    now = 0.0
    while len(sequence) < len(lowered.tasks) or events:
        for slot in sorted(ready, key=lambda s: (-rank[s], s)):
            lanes = lowered.tasks[slot].lanes
            if all(free[lane] for lane in lanes):
                ready.discard(slot)
                sequence.append(slot)
                free.update(dict.fromkeys(lanes, False))
                heapq.heappush(events, (now + durations[slot], 0, "end", slot))
                for i, arc in enumerate(out[slot]):
                    heapq.heappush(events, (now + _after(arc, durations, offsets), i + 1, "arc", slot))
        now = events[0][0]
        # Everything that happens at one moment is known before the lanes choose.
        while events and events[0][0] == now:
            _, index, what, slot = heapq.heappop(events)
            if what == "end":
                free.update(dict.fromkeys(lowered.tasks[slot].lanes, True))
                continue
            arc = out[slot][index - 1]
            waiting[arc.dst] -= 1
            if waiting[arc.dst] == 0:
                ready.add(arc.dst)
    return sequence
