"""Lane orders by upward rank, compiled; `rpeg.schedule.list_order` is the reference and says why."""

from __future__ import annotations

from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import Floats, Ints, Work

RUN, TRANSFER, RELOAD, OFFLOAD = 0, 1, 2, 3


@compiled
def indexed(items: int, arcs: int, ends: Ints, head: Ints, by: Ints) -> None:
    """Arcs by one of their ends: those of node i are by[head[i]] … by[head[i + 1] - 1], in their order."""
    for i in range(items + 1):
        head[i] = 0
    for arc in range(arcs):
        head[ends[arc] + 1] += 1
    for i in range(items):
        head[i + 1] += head[i]
    for arc in range(arcs - 1, -1, -1):
        head[ends[arc] + 1] -= 1
        by[head[ends[arc] + 1]] = arc
    for i in range(items):
        head[i] = head[i + 1]
    head[items] = arcs


@compiled
def lags(w: Work, arcs: int) -> None:
    """w.weight: mean seconds from the start of each arc's source until it is satisfied."""
    for arc in range(arcs):
        w.weight[arc] = w.mean[w.src[arc]] if w.key[arc] < 0 else w.offset_mean[w.key[arc]]


@compiled
def upward(
    w: Work, items: int, into_head: Ints, floor: Floats, rank: Floats, waiting: Ints, stack: Ints
) -> bool:
    """Longest time from each item's start to the end of all that follows it in a period. False: a cycle."""
    for node in range(items):
        waiting[node] = 0
    for i in range(w.head[items]):
        if w.height[i] == 0 and w.src[i] != w.dst[i]:
            waiting[w.src[i]] += 1
    top, done = 0, 0
    for node in range(items):
        rank[node] = floor[node]
        if waiting[node] == 0:
            stack[top] = node
            top += 1
    while top:
        top -= 1
        node = stack[top]
        done += 1
        for i in range(into_head[node], into_head[node + 1]):
            arc = w.into[i]
            other = w.src[arc]
            if w.height[arc] != 0 or other == node:
                continue
            rank[other] = max(rank[other], w.weight[arc] + rank[node])
            waiting[other] -= 1
            if waiting[other] == 0:
                stack[top] = other
                top += 1
    return done == items


@compiled
def by_rank(w: Work, items: int, order: Ints) -> None:
    """Offloads, then items by falling rank; `order` holds those of equal rank in their order."""
    for i in range(1, items):
        item, j = order[i], i - 1
        first = w.item_kind[item] == OFFLOAD
        while j >= 0:
            before = order[j]
            leads = w.item_kind[before] == OFFLOAD
            if (leads and not first) or (leads == first and w.rank[before] >= w.rank[item]):
                break
            order[j + 1] = before
            j -= 1
        order[j + 1] = item


@compiled
def wants(
    head: Ints, by_src: Ints, dst: Ints, height: Ints, mask: int, node: int, now: float, lanes: int, beside: Ints,
    known: Floats, brought: Ints,
) -> bool:  # fmt: skip
    """Whether something waits for a reload alone, and nothing else was brought to its lanes and is still there."""
    users, asked = 0, False
    for i in range(head[node], head[node + 1]):
        arc = by_src[i]
        if height[arc] == 0 and dst[arc] != node:
            users += 1
            user = dst[arc]
            asked = asked or (beside[user] == 0 and known[user] <= now)
    if users and not asked:
        return False
    crowded = False
    for lane in range(lanes):
        crowded = crowded or (mask >> lane & 1 == 1 and brought[lane] > 0)
    return not crowded


@compiled
def is_free(mask: int, now: float, lanes: int, free: Floats) -> bool:
    """Whether no lane of a mask is busy."""
    blocked = False
    for lane in range(lanes):
        blocked = blocked or (mask >> lane & 1 == 1 and free[lane] > now)
    return not blocked


@compiled
def start(
    head: Ints, by_src: Ints, dst: Ints, height: Ints, weight: Floats, mask: int, kind: int, seconds: float, node: int,
    now: float, lanes: int, waiting: Ints, beside: Ints, brought: Ints, ready: Floats, known: Floats, free: Floats,
) -> None:  # fmt: skip
    """Takes its lanes, and tells what follows when it may."""
    for lane in range(lanes):
        if mask >> lane & 1:
            free[lane] = now + seconds
            if kind == RELOAD:
                brought[lane] += 1
            elif kind == OFFLOAD:
                brought[lane] -= 1
    for i in range(head[node], head[node + 1]):
        arc = by_src[i]
        other = dst[arc]
        if height[arc] != 0 or other == node:
            continue
        at = now + weight[arc]
        waiting[other] -= 1
        ready[other] = max(ready[other], at)
        if kind != RELOAD:
            beside[other] -= 1
            known[other] = max(known[other], at)


@compiled
def greedy(w: Work, items: int, lanes: int) -> bool:
    """Items in the order of their start, every free lane taking the ready one of highest rank. False: stuck."""
    order, waiting, left, beside, brought = w.ints[3], w.ints[1], w.ints[4], w.ints[8], w.ints[9]
    ready, free, known = w.floats[2], w.floats[3], w.floats[8]
    head, by_src, dst, height, weight = w.head, w.by_src, w.dst, w.height, w.weight
    masks, kinds, mean = w.item_mask, w.item_kind, w.mean
    for node in range(items):
        waiting[node], beside[node], left[node], ready[node], known[node] = 0, 0, 1, 0.0, 0.0
    for i in range(w.head[items]):
        if w.height[i] == 0 and w.src[i] != w.dst[i]:
            waiting[w.dst[i]] += 1
            if kinds[w.src[i]] != RELOAD:
                beside[w.dst[i]] += 1
    for lane in range(lanes):
        free[lane], brought[lane] = 0.0, 0
    now, started = 0.0, 0
    while True:
        launched, put_off = False, -1
        for place in range(items):
            node = order[place]
            if (
                left[node] == 0
                or waiting[node] > 0
                or ready[node] > now
                or not is_free(masks[node], now, lanes, free)
            ):
                continue
            if kinds[node] == RELOAD and not wants(
                head, by_src, dst, height, masks[node], node, now, lanes, beside, known, brought
            ):
                put_off = node if put_off < 0 else put_off
                continue
            start(
                head, by_src, dst, height, weight, masks[node], kinds[node], mean[node], node, now, lanes, waiting,
                beside, brought, ready, known, free,
            )  # fmt: skip
            left[node], w.sequence[started], launched = 0, node, True
            started += 1
        if started == items:
            return True
        later = 1e300
        for node in range(items):
            if left[node] and waiting[node] == 0 and now < ready[node] < later:
                later = ready[node]
            if left[node] and beside[node] == 0 and now < known[node] < later:
                later = known[node]
        for lane in range(lanes):
            if now < free[lane] < later:
                later = free[lane]
        if later >= 1e300:
            if launched:
                continue
            if put_off < 0:
                return False
            start(
                head, by_src, dst, height, weight, masks[put_off], RELOAD, mean[put_off], put_off, now, lanes, waiting,
                beside, brought, ready, known, free,
            )  # fmt: skip
            left[put_off], w.sequence[started] = 0, put_off
            started += 1
            if started == items:
                return True
            continue
        now = later


@compiled
def ordered(w: Work, items: int, arcs: int, lanes: int) -> bool:
    """The sequence in which lanes take their items. w.ints[3]: items in the order of their names. False: a cycle."""
    into_head, waiting, stack = w.ints[0], w.ints[1], w.ints[2]
    indexed(items, arcs, w.src, w.head, w.by_src)
    indexed(items, arcs, w.dst, into_head, w.into)
    lags(w, arcs)
    floor, alone = w.floats[0], w.floats[1]
    for item in range(items):
        floor[item] = w.mean[item]
    if not upward(w, items, into_head, floor, alone, waiting, stack):
        return False
    for arc in range(arcs):
        if w.height[arc] == 1 and w.src[arc] != w.dst[arc]:
            floor[w.src[arc]] = max(floor[w.src[arc]], w.weight[arc] + alone[w.dst[arc]])
    upward(w, items, into_head, floor, w.rank, waiting, stack)
    by_rank(w, items, w.ints[3])
    return greedy(w, items, lanes)
