"""The step time of a state, compiled: arrays in, seconds out.

Lane orders by upward rank of the mean times, then for each draw the maximum cycle ratio of the event graph with those
orders. Equal to `rpeg.sim`'s on the plan that the state stands for, at the times of the tables.
"""

from __future__ import annotations

from rpeg.search.compiled.arcs import arcs_of, lane_arcs, rest_arcs
from rpeg.search.compiled.blocks import INVALID, MISSING_LEVEL, MISSING_TRANSFER, OK, choose, join, used
from rpeg.search.compiled.hosts import host_short
from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import GENERATE, HOST, TRAIN, Floats, Ints, Rows, Shape, Site, State, Work
from rpeg.search.compiled.memory import away, caches, device_short, gather, level_of
from rpeg.search.compiled.order import OFFLOAD, RELOAD, RUN, TRANSFER, indexed, ordered
from rpeg.search.compiled.ratio import cycle_ratio


@compiled
def moving(
    kind: int, row: int, stage: int, away: Ints, tenant: Ints, trained: Ints, gone: Ints, feed: Ints, held: Floats,
    engine: Floats, coming: bool,
) -> float:  # fmt: skip
    """Seconds in which what a stage has offloaded comes to its devices, or goes."""
    if kind == GENERATE:
        return engine[row, 4] if coming and away[stage] else 0.0
    kept, total = kind == TRAIN, 0.0
    for slot in range(feed.shape[1]):
        kept = kept or feed[stage, slot] >= 0
    for slot in range(feed.shape[1]):
        if tenant[stage, slot] < 0 or gone[stage, slot] == 0:
            continue
        variant = trained[stage, slot]
        if kind == TRAIN:
            total += held[row, slot, variant, 5 if gone[stage, slot] == 2 else 4]
        elif gone[stage, slot] == 2 and (coming or kept):
            total += held[row, slot, variant, 3]
    return total


@compiled
def items_of(shape: Shape, rows: Rows, site: Site, state: State, w: Work, least: Floats) -> int:
    """Stage, lanes, shift and seconds of every run item."""
    host = len(state.size)
    for stage in range(len(shape.kind)):
        row, first = w.row[stage], shape.first[stage]
        mask = 1 << host if shape.kind[stage] == HOST else used(state, state.mask[stage])
        at = 0
        if shape.kind[stage] == GENERATE:
            level = level_of(rows, row, least[stage])
            at = rows.levels[row, level]
            if at < 0:
                w.miss[0], w.miss[1], w.miss[2], w.miss[3] = MISSING_LEVEL, row, level, stage
                return MISSING_LEVEL
        for part in range(shape.parts[stage]):
            item = first + part
            w.item_stage[item], w.item_mask[item], w.item_shift[item] = stage, mask, state.shift[stage]
            w.item_kind[item] = RUN
            for draw in range(site.draws):
                w.duration[item, draw] = site.dispatch
        if shape.kind[stage] == GENERATE:
            extra = site.dispatch
            for part in range(shape.parts[stage]):
                for draw in range(site.draws):
                    w.duration[first + part, draw] = extra + rows.seconds[at + part * site.draws + draw]
            place = shape.parts[stage]
            for base in range(len(shape.bases)):
                if shape.bases[base] == stage:
                    for draw in range(site.draws):
                        w.offset[base, draw] = extra + rows.seconds[at + place * site.draws + draw]
                    place += 1
            continue
        for slot in range(shape.model.shape[1]):
            at = rows.core[row, slot, w.trained[stage, slot]]
            if at < 0:
                continue
            for part in range(shape.parts[stage]):
                for draw in range(site.draws):
                    w.duration[first + part, draw] += rows.seconds[at + part * site.draws + draw]
    return OK


@compiled
def relation(state: State, one: int, other: int) -> int:
    """0: blocks apart; 1: they share devices and begin at the same; 2: they share devices."""
    if not one & other:
        return 0
    return 1 if one & -one == other & -other else 2


@compiled
def find(table: Ints, key: int) -> int:
    """The place of a key in an open hash table, or that where it would go."""
    size = len(table)
    place = (key * 40503 + (key >> 17)) % size
    while table[place, 0] != key and table[place, 0] != -1:
        place = (place + 1) % size
    return place


@compiled
def transfer_key(source: int, target: int, how: int, model: int) -> int:
    """The key of a transfer between two options."""
    return ((source << 20 | target) << 2 | how) << 6 | model


@compiled
def transfers(shape: Shape, rows: Rows, site: Site, state: State, w: Work, node: Ints) -> int:
    """The items of the copies, after the run items; their number, or -1 where one is not known. node: (E,) its item."""
    count = 0
    for stage in range(len(shape.kind)):
        count += shape.parts[stage]
    for e in range(len(shape.edges)):
        node[e] = -1
        if w.copy[e] != e:
            continue
        trainer, consumer = shape.edges[e, 0], shape.edges[e, 1]
        here, there = used(state, state.mask[trainer]), used(state, state.mask[consumer])
        how = relation(state, here, there)
        key = transfer_key(w.row[trainer], w.row[consumer], how, shape.edges[e, 5])
        place = find(rows.moved, key)
        if rows.moved[place, 0] == -1:
            w.miss[0], w.miss[1], w.miss[2], w.miss[3] = (
                MISSING_TRANSFER,
                w.row[trainer],
                w.row[consumer],
                how,
            )
            w.miss[4], w.miss[5], w.miss[6] = trainer, consumer, shape.edges[e, 5]
            return -1
        seconds = site.dispatch + rows.seconds[rows.moved[place, 1]]
        shift = 1 << 40
        for other in range(len(shape.edges)):
            if w.copy[other] == e:
                shift = min(shift, state.shift[shape.edges[other, 1]])
        node[e] = count
        w.item_stage[count], w.item_mask[count], w.item_shift[count] = e, there, shift
        w.item_kind[count] = TRANSFER
        for draw in range(site.draws):
            w.duration[count, draw] = seconds
        count += 1
    return count


@compiled
def rests(shape: Shape, rows: Rows, site: Site, state: State, w: Work, count: int) -> int:
    """The reloads and offloads, after the other items; the number of all."""
    for coming in range(1, -1, -1):
        for stage in range(len(shape.kind)):
            if w.users[stage] == 0:
                continue
            shift = -1
            for other in range(len(shape.kind)):
                if w.users[stage] >> other & 1:
                    later = state.shift[other] > shift if coming == 0 else state.shift[other] < shift
                    if shift < 0 or later:
                        shift = state.shift[other]
            w.item_stage[count], w.item_mask[count] = stage, used(state, state.mask[stage])
            w.item_shift[count], w.item_kind[count] = shift, RELOAD if coming else OFFLOAD
            seconds = site.dispatch + moving(
                shape.kind[stage], w.row[stage], stage, w.away, w.tenant, w.trained, w.gone, shape.feed, rows.held,
                rows.engine, coming == 1,
            )  # fmt: skip
            for draw in range(site.draws):
                w.duration[count, draw] = seconds
            count += 1
    return count


@compiled
def named(shape: Shape, w: Work, items: int, order: Ints) -> None:
    """Items in the order of their slots: offloads, reloads, runs, transfers, each by name."""
    count = 0
    for kind in (OFFLOAD, RELOAD):
        for place in range(len(shape.rests)):
            for item in range(items):
                if w.item_kind[item] == kind and w.item_stage[item] == shape.rests[place]:
                    order[count] = item
                    count += 1
    for item in range(items):
        if w.item_kind[item] == RUN or w.item_kind[item] == TRANSFER:
            order[count] = item
            count += 1


@compiled
def means(shape: Shape, site: Site, w: Work, items: int) -> None:
    """Over the draws, as plans are ordered by."""
    for item in range(items):
        total = 0.0
        for draw in range(site.draws):
            total += w.duration[item, draw]
        w.mean[item] = total / site.draws
    for base in range(len(shape.bases)):
        total = 0.0
        for draw in range(site.draws):
            total += w.offset[base, draw]
        w.offset_mean[base] = total / site.draws


@compiled
def busy(w: Work, items: int, lanes: int) -> float:
    """Mean seconds that the busiest lane works in a step: no order of it is faster."""
    most = 0.0
    for lane in range(lanes):
        total = 0.0
        for item in range(items):
            if w.item_mask[item] >> lane & 1:
                total += w.mean[item]
        most = max(most, total)
    return most


@compiled
def step_seconds(
    shape: Shape, rows: Rows, site: Site, state: State, w: Work, beyond: float
) -> tuple[int, float, float]:
    """(OK, INVALID or what is missing, mean step seconds, share of memory that is missing).

    beyond: where lanes alone are busy for longer, their busy seconds stand for the step's.
    """
    code = choose(shape, rows, site, state, w.row, w.miss)
    if code != OK:
        return code, 1e300, 1e300
    join(shape, rows, state, w.row, w.trained, w.tenant, w.copy)
    away(shape, state, w)
    least, node = w.floats[5], w.ints[5]
    count = gather(shape, rows, w)
    caches(shape, rows, site, state, w, count, least)
    code = items_of(shape, rows, site, state, w, least)
    if code != OK:
        return code, 1e300, 1e300
    items = transfers(shape, rows, site, state, w, node)
    if items < 0:
        return MISSING_TRANSFER, 1e300, 1e300
    items = rests(shape, rows, site, state, w, items)
    arcs, lanes = arcs_of(shape, w, node), len(state.size) + 1
    arcs = rest_arcs(shape, w, node, items, arcs)
    if arcs < 0:
        return INVALID, 1e300, 1e300
    means(shape, site, w, items)
    if beyond < 1e300:
        most = busy(w, items, lanes)
        if most > beyond:
            return OK, most, 0.0
    named(shape, w, items, w.ints[3])
    if not ordered(w, items, arcs, lanes):
        return INVALID, 1e300, 1e300
    short = device_short(shape, site, state, w, items, count) + host_short(site, state, w, count)
    w.miss[7] = items
    arcs = lane_arcs(w, items, arcs, lanes)
    indexed(items, arcs, w.src, w.head, w.by_src)
    for item in range(items):
        w.policy[item] = w.by_src[w.head[item]]
    weight, total = w.weight, 0.0
    for draw in range(site.draws):
        for arc in range(arcs):
            key = w.key[arc]
            weight[arc] = w.duration[w.src[arc], draw] if key < 0 else w.offset[key, draw]
        total += cycle_ratio(
            items,
            w.head,
            w.by_src,
            w.dst,
            weight,
            w.height,
            w.policy,
            w.floats[6],
            w.floats[7],
            w.ints[6],
            w.ints[7],
        )
    return OK, total / site.draws, short
