"""What the hosts of a state's nodes hold, compiled; `rpeg.sim.memory` is the reference."""

from __future__ import annotations

from rpeg.search.compiled.blocks import start_of
from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import GENERATE, TRAIN, Floats, Ints, Site, State, Work


@compiled
def hosted(
    uses: Ints, count: int, host: Floats, away: Ints, masks: Ints, islands: int, speaks: Ints
) -> float:
    """Bytes of the host of a node whose devices belong to these islands. A trainer speaks for its tenant, else the first
    that uses it. host: (uses, 4)."""
    total, process = 0.0, 0.0
    for u in range(count):
        speaks[u] = 0
        if not masks[uses[u, 0]] & islands:
            continue
        speaks[u] = 1
        for v in range(count):
            if v != u and uses[v, 1] == uses[u, 1] and masks[uses[v, 0]] & islands:
                before = uses[v, 2] == TRAIN or (v < u and uses[u, 2] != TRAIN)
                if before and uses[v, 0] != uses[u, 0]:
                    speaks[u] = 0
        process = max(process, host[u, 3])
        if speaks[u]:
            total += host[u, 0 if uses[u, 2] == GENERATE else away[uses[u, 0]]]
    return total + process


@compiled
def host_short(site: Site, state: State, w: Work, count: int) -> float:
    """What hosts lack, as shares of their memory, summed over sorts of nodes."""
    short = 0.0
    for island in range(len(state.size)):
        kind = state.kind[island]
        if state.size[island] == 0 or site.host[kind] <= 0:
            continue
        islands = 1 << island
        if site.unit[kind] < site.width[kind]:  # others of its nodes count too
            begin = start_of(state, island) * site.unit[kind]
            low = begin // site.width[kind]
            high = (begin + state.size[island] * site.unit[kind] - 1) // site.width[kind]
            for other in range(len(state.size)):
                if state.kind[other] == kind and state.size[other] > 0:
                    first = start_of(state, other) * site.unit[kind]
                    last = first + state.size[other] * site.unit[kind] - 1
                    if last // site.width[kind] >= low and first // site.width[kind] <= high:
                        islands |= 1 << other
        short += max(
            0.0, hosted(w.uses, count, w.hosts, w.away, state.mask, islands, w.places) / site.host[kind] - 1.0
        )
    return short
