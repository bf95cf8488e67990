"""What the devices and hosts of a state hold, compiled; `rpeg.sim.memory` is the reference.

What never leaves a device is there while others use it; what is offloaded is there from its reload to its offload, which
the order of the lane says. An engine's cache takes what is left of its share.
"""

from __future__ import annotations

import math

from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import (
    GENERATE,
    INFERENCE,
    LEVELS,
    PER_OCTAVE,
    TRAIN,
    Floats,
    Ints,
    Rows,
    Shape,
    Site,
    State,
    Work,
)
from rpeg.search.compiled.order import OFFLOAD, RELOAD, RUN, TRANSFER

WEIGHTS, OPTIMIZER, CACHE = 0, 1, 2


@compiled
def away(shape: Shape, state: State, w: Work) -> None:
    """w.away: what of each stage's own state is offloaded, 0 where that is for others to say. w.users: of each rest the
    stages that use it, as bits; 0 for stages without a rest."""
    for stage in range(len(shape.kind)):
        w.away[stage], w.users[stage] = 0, 0
        if shape.kind[stage] == TRAIN:
            w.away[stage] = state.offload[stage]
            w.users[stage] = 1 << stage if state.offload[stage] else 0
    for stage in range(len(shape.kind)):
        if shape.kind[stage] != GENERATE and shape.kind[stage] != INFERENCE:
            continue
        own, frozen, borrowed, lent, users = False, False, False, False, 1 << stage
        for slot in range(shape.model.shape[1]):
            edge = shape.feed[stage, slot]
            if shape.model[stage, slot] < 0:
                continue
            if edge == -1:
                frozen = True
            elif w.copy[edge] < 0:
                lent = lent or state.offload[shape.edges[edge, 0]] == 2
            elif shape.edges[w.copy[edge], 1] == stage:
                own = True
            else:
                borrowed = True
        for e in range(len(shape.edges)):
            if w.copy[e] >= 0 and shape.edges[w.copy[e], 1] == stage:
                users |= 1 << shape.edges[e, 1]
        holds = own or frozen or (shape.kind[stage] == GENERATE and not borrowed)
        if state.offload[stage] and holds:
            w.away[stage] = 2
        if lent or w.away[stage]:
            w.users[stage] = users


@compiled
def gather(shape: Shape, rows: Rows, w: Work) -> int:
    """All uses of weights as a table, for what follows; their number."""
    count = 0
    for stage in range(len(shape.kind)):
        row = w.row[stage]
        for slot in range(shape.model.shape[1]):
            if w.tenant[stage, slot] < 0:
                continue
            variant, gone = w.trained[stage, slot], w.away[stage]
            edge = shape.feed[stage, slot]
            if edge >= 0 and variant and shape.kind[stage] != GENERATE:
                gone = w.away[shape.edges[edge, 0]]
            w.gone[stage, slot] = gone
            w.uses[count, 0], w.uses[count, 1], w.uses[count, 2] = (
                stage,
                w.tenant[stage, slot],
                shape.kind[stage],
            )
            w.uses[count, 3], w.uses[count, 4] = gone, shape.model[stage, slot]
            w.sizes[count, 0], w.sizes[count, 1] = (
                rows.held[row, slot, variant, 1],
                rows.held[row, slot, variant, 2],
            )
            w.sizes[count, 2], w.sizes[count, 3] = (
                rows.held[row, slot, variant, 0],
                rows.held[row, slot, variant, 7],
            )
            if gone and variant and shape.kind[stage] == INFERENCE:
                w.sizes[count, 2] = rows.held[row, slot, variant, 6]
            if shape.kind[stage] == GENERATE:
                w.sizes[count, 2], w.sizes[count, 3] = rows.engine[row, 0], rows.engine[row, 5]
            for i in range(4):
                w.hosts[count, i] = rows.host[row, slot, i]
            count += 1
    return count


@compiled
def tally(names: Ints, most: Floats, count: int, name: int, size: float) -> int:
    """One tenant's state is as large as the largest of its uses; the number of those known."""
    for i in range(count):
        if names[i] == name:
            most[i] = max(most[i], size)
            return count
    names[count], most[count] = name, size
    return count + 1


@compiled
def cache_room(
    uses: Ints,
    sizes: Floats,
    count: int,
    masks: Ints,
    island: int,
    model: int,
    budget: float,
    names: Ints,
    most: Floats,
) -> float:
    """Bytes that a model's generator has for its cache on an island, of a budget of bytes."""
    known = 0
    for u in range(count):
        if uses[u, 2] > GENERATE and masks[uses[u, 0]] >> island & 1 and uses[u, 1] != model:
            size = (sizes[u, 0] if uses[u, 3] != 2 else 0.0) + (sizes[u, 1] if uses[u, 3] == 0 else 0.0)
            known = tally(names, most, known, uses[u, 1], size)
    for i in range(known):
        budget -= most[i]
    return budget


@compiled
def caches(shape: Shape, rows: Rows, site: Site, state: State, w: Work, count: int, least: Floats) -> None:
    """w.cache: of each generator its cache on each island; least: the smallest."""
    for stage in range(len(shape.kind)):
        least[stage] = 1e300
        if shape.kind[stage] != GENERATE:
            continue
        row = w.row[stage]
        each, rows_at_once, generating = rows.engine[row, 2], rows.engine[row, 3], rows.engine[row, 1]
        for island in range(len(state.size)):
            if state.size[island] > 0 and state.mask[stage] >> island & 1:
                kind = state.kind[island]
                budget = site.share[kind] * site.capacity[kind] - generating
                left = cache_room(
                    w.uses, w.sizes, count, state.mask, island, shape.model[stage, 0], budget, w.names, w.most
                )
                w.cache[stage, island] = max(each, min(left, each * rows_at_once))
                least[stage] = min(least[stage], w.cache[stage, island])


@compiled
def awake(
    sequence: Ints, stage_of: Ints, kind_of: Ints, masks: Ints, users: Ints, items: int, lane: int, places: Ints,
    there: Ints,
) -> int:  # fmt: skip
    """there: of each item of a lane, the rests that are on its devices meanwhile, as bits of stages. places: the items
    of the lane in their order; their number."""
    count = 0
    for i in range(items):
        item = sequence[i]
        if masks[item] >> lane & 1:
            places[count], there[item] = item, 0
            count += 1
    for i in range(count):
        if kind_of[places[i]] != RELOAD:
            continue
        stage, j = stage_of[places[i]], i
        while True:
            there[places[j]] |= 1 << stage
            if kind_of[places[j]] == OFFLOAD and stage_of[places[j]] == stage:
                break
            j = (j + 1) % count
    return count


@compiled
def resting(
    uses: Ints, sizes: Floats, count: int, masks: Ints, away: Ints, cache: Floats, island: int, there: int, names: Ints,
    most: Floats,
) -> int:  # fmt: skip
    """Bytes by (tenant, what) that lie on an island's devices while nothing of them runs; their number."""
    known = 0
    for u in range(count):
        stage, kind, gone = uses[u, 0], uses[u, 2], uses[u, 3]
        if not masks[stage] >> island & 1:
            continue
        here = there >> stage & 1  # its rest: all of it, or a trainer's optimizer alone
        whole = here and not (kind == TRAIN and away[stage] == 1)
        weights = sizes[u, 0] if gone != 2 or whole else 0.0
        known = tally(names, most, known, 4 * uses[u, 1] + WEIGHTS, weights)
        if kind == TRAIN:
            known = tally(
                names, most, known, 4 * uses[u, 1] + OPTIMIZER, sizes[u, 1] if gone == 0 or here else 0.0
            )
        elif kind == GENERATE:
            size = cache[stage, island] if gone == 0 or here else 0.0
            known = tally(names, most, known, 4 * uses[u, 1] + CACHE, size)
    return known


@compiled
def beside_own(names: Ints, most: Floats, known: int, own: int, kind: int, gone: int) -> float:
    """Bytes of what rests that a use of a tenant does not count itself."""
    total = 0.0
    for i in range(known):
        if names[i] // 4 == own:
            what = names[i] % 4
            if (
                what == WEIGHTS
                or (kind == TRAIN and what == OPTIMIZER)
                or (kind == GENERATE and what == CACHE)
            ):
                continue
            if kind == INFERENCE and what == OPTIMIZER and gone == 0:
                continue
        total += most[i]
    return total


@compiled
def island_peak(
    uses: Ints, sizes: Floats, count: int, state_mask: Ints, away: Ints, users: Ints, cache: Floats, edges: Ints,
    sequence: Ints, stage_of: Ints, kind_of: Ints, masks: Ints, items: int, island: int, places: Ints, there: Ints,
    beside: Ints, names: Ints, most: Floats,
) -> float:  # fmt: skip
    """The most that a device of an island holds at any time."""
    on_lane = awake(sequence, stage_of, kind_of, masks, users, items, island, places, there)
    for stage in range(len(users)):
        beside[stage] = 0
    worst, process = 0.0, 0.0
    for u in range(count):
        if state_mask[uses[u, 0]] >> island & 1:
            process = max(process, sizes[u, 3])
    for i in range(on_lane):
        item = places[i]
        kind, stage = kind_of[item], stage_of[item]
        if kind in (RELOAD, OFFLOAD):
            known = resting(uses, sizes, count, state_mask, away, cache, island, there[item], names, most)
            total = process
            for k in range(known):
                total += most[k]
            worst = max(worst, total)
        elif there[item]:
            if kind == TRANSFER:
                stage = edges[stage, 1]
            for rest in range(len(users)):
                own = users[rest] >> stage & 1 if kind == RUN else rest == stage
                if there[item] >> rest & 1 and not own:
                    beside[stage] |= 1 << rest
    for u in range(count):
        stage = uses[u, 0]
        if not state_mask[stage] >> island & 1:
            continue
        known = resting(uses, sizes, count, state_mask, away, cache, island, beside[stage], names, most)
        total = sizes[u, 2] + (cache[stage, island] if uses[u, 2] == GENERATE else 0.0)
        total += beside_own(names, most, known, uses[u, 1], uses[u, 2], uses[u, 3])
        worst = max(worst, total)
    return worst


@compiled
def device_short(shape: Shape, site: Site, state: State, w: Work, items: int, count: int) -> float:
    """What devices lack, as shares of their capacity, summed over islands."""
    short = 0.0
    for island in range(len(state.size)):
        if state.size[island] > 0:
            peak = island_peak(
                w.uses, w.sizes, count, state.mask, w.away, w.users, w.cache, shape.edges, w.sequence, w.item_stage,
                w.item_kind, w.item_mask, items, island, w.places, w.there, w.beside, w.names, w.most,
            )  # fmt: skip
            short += max(0.0, peak / site.capacity[state.kind[island]] - 1.0)
    return short


@compiled
def level_of(rows: Rows, row: int, cache: float) -> int:
    """The level of a cache, in steps of a quarter octave above the longest sequence, rounded down."""
    ratio = cache / rows.engine[row, 2]
    level = math.floor(PER_OCTAVE * math.log2(max(1.0, ratio)) + 1e-9)
    return max(0, min(LEVELS - 1, level))
