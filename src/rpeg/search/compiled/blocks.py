"""Which devices a state gives each stage, and which option of its table that selects; compiled."""

from __future__ import annotations

from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import HOST, Ints, Rows, Shape, Site, State

OK, INVALID, MISSING_OPTIONS, MISSING_LEVEL, MISSING_TRANSFER = 0, 1, 2, 3, 4


@compiled
def lowest_bit(number: int) -> int:
    """The largest power of two that divides it."""
    return number & -number


@compiled
def start_of(state: State, island: int) -> int:
    """Units of its kind before an island."""
    start = 0
    for other in range(island):
        if state.kind[other] == state.kind[island]:
            start += state.size[other]
    return start


@compiled
def block(site: Site, state: State, mask: int) -> tuple[int, int, int]:
    """(kind, units, log2 of the alignment in devices) of a union of islands; kind -1 where it is none.

    Alignment: tensor-parallel groups of at most so many consecutive devices of the block stay within a node.
    """
    kind, units = -1, 0
    for island in range(len(state.size)):
        if mask >> island & 1 and state.size[island] > 0:
            if kind >= 0 and state.kind[island] != kind:
                return -1, 0, 0
            kind = state.kind[island]
            units += state.size[island]
    if kind < 0:
        return -1, 0, 0
    unit, width = site.unit[kind], site.width[kind]
    align, first, last = width, 1 << 40, -1
    if unit < width:
        for island in range(len(state.size)):
            if mask >> island & 1 and state.size[island] > 0:
                start, size = start_of(state, island) * unit, state.size[island] * unit
                first, last = min(first, start), max(last, start + size - 1)
                align = min(align, lowest_bit(start | size | width))
        if first // width == last // width:
            align = width
    exponent = 0
    while 1 << (exponent + 1) <= align:
        exponent += 1
    return kind, units, exponent


@compiled
def choose(shape: Shape, rows: Rows, site: Site, state: State, row: Ints, miss: Ints) -> int:
    """The row of every stage's option. OK, INVALID, or MISSING_OPTIONS with what is asked for."""
    for stage in range(len(shape.kind)):
        kind, units, align = 0, 0, 0
        if shape.kind[stage] != HOST:
            kind, units, align = block(site, state, state.mask[stage])
            if kind < 0:
                return INVALID
        profile = shape.profile[stage]
        first, count = rows.where[profile, kind, units, align, 0], rows.where[profile, kind, units, align, 1]
        if first < 0:
            miss[0], miss[1], miss[2], miss[3], miss[4] = MISSING_OPTIONS, stage, kind, units, align
            return MISSING_OPTIONS
        if count == 0:
            return INVALID
        row[stage] = first + state.option[stage] % count
    return OK


@compiled
def used(state: State, mask: int) -> int:
    """The islands of a mask that have devices."""
    found = 0
    for island in range(len(state.size)):
        if mask >> island & 1 and state.size[island] > 0:
            found |= 1 << island
    return found


@compiled
def join(shape: Shape, rows: Rows, state: State, row: Ints, trained: Ints, tenant: Ints, copy: Ints) -> None:
    """Which stages use the trainer's own weights; copy: of each weights edge the first that its copy serves, else -1."""
    for stage in range(len(shape.kind)):
        for slot in range(shape.model.shape[1]):
            trained[stage, slot] = 1 if shape.feed[stage, slot] == -2 else 0
            tenant[stage, slot] = shape.model[stage, slot]
    for e in range(len(shape.edges)):
        trainer, consumer = shape.edges[e, 0], shape.edges[e, 1]
        mask, layout = used(state, state.mask[consumer]), rows.layout[row[consumer]]
        same = mask == used(state, state.mask[trainer]) and layout == rows.layout[row[trainer]]
        copy[e] = e
        if same and shape.edges[e, 2] == 1:
            copy[e] = -1
        for other in range(len(shape.edges)):
            if copy[e] < 0 or shape.edges[other, 3] != shape.edges[e, 3]:
                continue
            where = shape.edges[other, 1]
            alike = used(state, state.mask[where]) == mask and rows.layout[row[where]] == layout
            if alike and shape.edges[other, 4] < shape.edges[copy[e], 4]:
                copy[e] = other
        for slot in range(shape.model.shape[1]):
            if shape.feed[consumer, slot] == e:
                trained[consumer, slot] = 1 if copy[e] < 0 else 0
                if copy[e] >= 0:
                    tenant[consumer, slot] = 1000 + copy[e]
