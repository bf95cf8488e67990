"""Random changes of a state, compiled. The random numbers are counted, so that they are the same everywhere."""

from __future__ import annotations

from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import HOST, TRAIN, Ints, Shape, State

MOVES = 9


@compiled
def number(seed: int, count: int) -> int:
    """The count-th random number of a seed, 0 … 2³¹ - 1: a multiplicative hash in 61-bit arithmetic without overflow."""
    x = (seed * 7919 + count * 104729 + 12345) & 0x7FFFFFFF
    for _ in range(3):
        x = (x ^ (x >> 15)) & 0x7FFFFFFF
        x = (x * 0x2C1B3C6D) & 0x7FFFFFFF
        x = (x ^ (x >> 12) ^ (seed & 0x7FFF)) & 0x7FFFFFFF
        x = (x * 0x297A2D39 + count) & 0x7FFFFFFF
    return (x ^ (x >> 15)) & 0x7FFFFFFF


@compiled
def below(random: Ints, bound: int) -> int:
    """A number below `bound`; random: [seed, count]."""
    random[1] += 1
    return number(random[0], random[1]) % bound


@compiled
def uniform(random: Ints) -> float:
    """In (0, 1)."""
    random[1] += 1
    return (number(random[0], random[1]) + 0.5) / 2147483648.0


@compiled
def copy_state(source: State, target: State) -> None:
    """All of a state."""
    for i in range(len(source.size)):
        target.size[i], target.kind[i] = source.size[i], source.kind[i]
    for s in range(len(source.mask)):
        target.mask[s], target.option[s] = source.mask[s], source.option[s]
        target.offload[s], target.shift[s] = source.offload[s], source.shift[s]


@compiled
def a_stage(shape: Shape, random: Ints) -> int:
    """One that has devices."""
    while True:
        stage = below(random, len(shape.kind))
        if shape.kind[stage] != HOST:
            return stage


@compiled
def an_island(state: State, random: Ints) -> int:
    """One that has devices."""
    island = below(random, len(state.size))
    for _ in range(len(state.size)):
        if state.size[island] > 0:
            break
        island = (island + 1) % len(state.size)
    return island


@compiled
def free_island(state: State) -> int:
    """One without devices; -1 where all have some."""
    for island in range(len(state.size)):
        if state.size[island] == 0:
            return island
    return -1


@compiled
def kind_of(state: State, mask: int) -> int:
    """Of a union of islands."""
    for island in range(len(state.size)):
        if mask >> island & 1 and state.size[island] > 0:
            return int(state.kind[island])
    return -1


@compiled
def resize(state: State, random: Ints) -> bool:
    """Moves devices from an island to another of its kind, that may be new."""
    giver, taker = an_island(state, random), an_island(state, random)
    if giver == taker or state.size[giver] == 0:
        return False
    if state.size[taker] == 0:
        return False
    if state.kind[giver] != state.kind[taker]:
        return False
    most = state.size[giver]
    amount = 1 + below(random, most) if below(random, 2) else 1
    state.size[giver] -= amount
    state.size[taker] += amount
    return True


@compiled
def split(shape: Shape, state: State, random: Ints) -> bool:
    """Cuts an island in two; a stage then has both, or one of them."""
    giver, taker = an_island(state, random), free_island(state)
    if taker < 0 or state.size[giver] < 2:
        return False
    amount = 1 + below(random, state.size[giver] - 1)
    if below(random, 2):
        amount = state.size[giver] // 2
    state.size[giver] -= amount
    state.size[taker], state.kind[taker] = amount, state.kind[giver]
    for stage in range(len(shape.kind)):
        state.mask[stage] &= ~(1 << taker)
        if state.mask[stage] >> giver & 1:
            how = below(random, 3)
            if how != 1:
                state.mask[stage] |= 1 << taker
            if how == 2:
                state.mask[stage] &= ~(1 << giver)
    return True


@compiled
def merge(shape: Shape, state: State, random: Ints) -> bool:
    """Two islands of a kind become one, which all their stages have."""
    giver, taker = an_island(state, random), an_island(state, random)
    if giver == taker or state.size[giver] == 0 or state.size[taker] == 0:
        return False
    if state.kind[giver] != state.kind[taker]:
        return False
    state.size[taker] += state.size[giver]
    state.size[giver] = 0
    for stage in range(len(shape.kind)):
        if state.mask[stage] >> giver & 1:
            state.mask[stage] = state.mask[stage] & ~(1 << giver) | 1 << taker
    return True


@compiled
def toggle(shape: Shape, state: State, random: Ints) -> bool:
    """A stage gets an island more, or one less, or another one instead."""
    stage, island = a_stage(shape, random), an_island(state, random)
    if state.size[island] == 0:
        return False
    bit = 1 << island
    if state.kind[island] != kind_of(state, state.mask[stage]) or below(random, 3) == 0:
        if state.mask[stage] == bit:
            return False
        state.mask[stage] = bit
        return True
    changed = state.mask[stage] ^ bit
    if kind_of(state, changed) < 0:
        return False
    state.mask[stage] = changed
    return True


@compiled
def follow(shape: Shape, state: State, random: Ints) -> bool:
    """A stage goes where another is; with its option and ways where both have the same choice."""
    stage, other = a_stage(shape, random), a_stage(shape, random)
    if stage == other or state.mask[stage] == state.mask[other]:
        return False
    if below(random, 3) == 0:  # they change places
        state.mask[stage], state.mask[other] = state.mask[other], state.mask[stage]
    else:
        state.mask[stage] = state.mask[other]
    return True


@compiled
def reoffload(shape: Shape, state: State, random: Ints) -> bool:
    """Another rest for a stage's weights."""
    stage = a_stage(shape, random)
    if shape.kind[stage] == TRAIN:
        state.offload[stage] = (state.offload[stage] + 1 + below(random, 2)) % 3
    else:
        state.offload[stage] = 2 - state.offload[stage]
    return True


@compiled
def reshift(shape: Shape, state: State, random: Ints) -> bool:
    """A stage and all that follows it within a step a period later, or it and all before it a period earlier.

    Shifts reach as far as weights may be old; beyond that they only turn the period round.
    """
    most = 0
    for e in range(len(shape.edges)):
        most = max(most, shape.edges[e, 2] - 1)
    if most == 0:
        return False
    stage, later = below(random, len(shape.kind)), below(random, 2) == 0
    state.shift[stage] += 1 if later else -1
    for _ in range(len(shape.kind)):
        for i in range(len(shape.data)):
            a, b = shape.data[i, 0], shape.data[i, 1]
            if state.shift[a] > state.shift[b]:
                if later:
                    state.shift[b] = state.shift[a]
                else:
                    state.shift[a] = state.shift[b]
    least = state.shift[0]
    for s in range(len(shape.kind)):
        least = min(least, state.shift[s])
    greatest = 0
    for s in range(len(shape.kind)):
        state.shift[s] -= least
        greatest = max(greatest, state.shift[s])
    return greatest <= most


@compiled
def with_trainer(shape: Shape, state: State, random: Ints) -> bool:
    """A consumer of weights goes to its trainer's devices; the option is left to later moves."""
    if len(shape.edges) == 0:
        return False
    e = below(random, len(shape.edges))
    trainer, consumer = shape.edges[e, 0], shape.edges[e, 1]
    if state.mask[trainer] == state.mask[consumer]:
        return False
    state.mask[consumer] = state.mask[trainer]
    return True


@compiled
def fastest(shape: Shape, before: State, state: State) -> None:
    """Stages whose devices have changed take the first of their options."""
    for stage in range(len(shape.kind)):
        changed = before.mask[stage] != state.mask[stage]
        for island in range(len(state.size)):
            if state.mask[stage] >> island & 1 and before.size[island] != state.size[island]:
                changed = True
        if changed:
            state.option[stage] = 0


@compiled
def move(shape: Shape, before: State, state: State, random: Ints, placed: bool) -> bool:
    """Changes a copy of `before`; False where nothing came of it. placed: blocks stay as they are."""
    which = below(random, 24)
    if placed:
        which = which % 12
    if which < 6:
        stage = a_stage(shape, random)
        state.option[stage] = below(random, 1 << 20) if which else 0
        return True
    if which < 9:
        return reoffload(shape, state, random)
    if which < 12:
        return reshift(shape, state, random)
    if which < 15:
        done = resize(state, random)
    elif which < 16:
        done = split(shape, state, random)
    elif which < 17:
        done = merge(shape, state, random)
    elif which < 20:
        done = toggle(shape, state, random)
    elif which < 22:
        done = follow(shape, state, random)
    else:
        done = with_trainer(shape, state, random)
    if done and below(random, 3):
        fastest(shape, before, state)
    return done
