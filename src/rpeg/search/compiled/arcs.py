"""The arcs of a state's event graph, compiled."""

from __future__ import annotations

from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import TRAIN, Ints, Shape, Work
from rpeg.search.compiled.order import OFFLOAD, RELOAD


@compiled
def add(arcs: tuple[Ints, Ints, Ints, Ints, Ints], at: int, src: int, dst: int, key: int, delay: int) -> int:
    """One more arc; -1 where its source would run in a later period. arcs: src, dst, key, height; shifts of items."""
    height = delay + arcs[4][dst] - arcs[4][src]
    if at < 0 or height < 0:
        return -1
    arcs[0][at], arcs[1][at], arcs[2][at], arcs[3][at] = src, dst, key, height
    return at + 1


@compiled
def arcs_of(shape: Shape, w: Work, node: Ints) -> int:
    """All arcs but those of lanes; their number, -1 where the shifts allow none."""
    at, to = 0, (w.src, w.dst, w.key, w.height, w.item_shift)
    for i in range(len(shape.arcs)):
        at = add(to, at, shape.arcs[i, 0], shape.arcs[i, 1], shape.arcs[i, 2], 0)
    for stage in range(len(shape.kind)):
        if shape.kind[stage] == TRAIN:
            at = add(to, at, shape.first[stage] + shape.parts[stage] - 1, shape.first[stage], -1, 1)
    for e in range(len(shape.edges)):
        trainer, consumer, delay = shape.edges[e, 0], shape.edges[e, 1], shape.edges[e, 2]
        first = shape.first[trainer]
        last = first + shape.parts[trainer] - 1
        moved = -1 if w.copy[e] < 0 else node[w.copy[e]]
        if moved >= 0:
            at = add(to, at, last, moved, -1, delay)
        for item in range(shape.first[consumer], shape.first[consumer] + shape.parts[consumer]):
            if moved < 0:
                at = add(to, at, last, item, -1, delay)
                at = add(to, at, item, first, -1, 0)
            else:
                at = add(to, at, moved, item, -1, 0)
                at = add(to, at, item, moved, -1, 1)
    return at


@compiled
def rest_arcs(shape: Shape, w: Work, node: Ints, items: int, at: int) -> int:
    """Reload, then all that use what it brings, then offload, then the next reload."""
    to = w.src, w.dst, w.key, w.height, w.item_shift
    for comes in range(items):
        if w.item_kind[comes] != RELOAD:
            continue
        stage, goes = w.item_stage[comes], comes
        while w.item_kind[goes] != OFFLOAD or w.item_stage[goes] != stage:
            goes += 1
        for user in range(len(shape.kind)):
            if w.users[stage] >> user & 1:
                for item in range(shape.first[user], shape.first[user] + shape.parts[user]):
                    at = add(to, at, comes, item, -1, 0)
                    at = add(to, at, item, goes, -1, 0)
        for e in range(len(shape.edges)):
            if node[e] >= 0 and shape.edges[e, 1] == stage:
                at = add(to, at, comes, node[e], -1, 0)
                at = add(to, at, node[e], goes, -1, 0)
        at = add(to, at, goes, comes, -1, 1)
    return at


@compiled
def lane_arcs(w: Work, items: int, arcs: int, lanes: int) -> int:
    """The turns of every lane one after another, and from its last to the first of the next period."""
    at = arcs
    for lane in range(lanes):
        alike = False
        for other in range(lane):
            same = True
            for i in range(items):
                if (w.item_mask[i] >> lane & 1) != (w.item_mask[i] >> other & 1):
                    same = False
                    break
            alike = alike or same
        if alike:
            continue
        first, last = -1, -1
        for i in range(items):
            item = w.sequence[i]
            if w.item_mask[item] >> lane & 1:
                if last >= 0:
                    w.src[at], w.dst[at], w.key[at], w.height[at] = last, item, -1, 0
                    at += 1
                else:
                    first = item
                last = item
        if first >= 0:
            w.src[at], w.dst[at], w.key[at], w.height[at] = last, first, -1, 1
            at += 1
    return at
