"""The arrays that the compiled functions work on. Indices of stages follow the stages' names, as lane orders do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

HOST, GENERATE, INFERENCE, TRAIN = 0, 1, 2, 3
SLOTS = 4
"""Most models that one stage calls."""


class Shape(NamedTuple):
    """A structure's items and arcs; S stages, E weights edges to other stages, B base parts.

    kind: (S,). first, parts: (S,) a stage's first item, and how many it has. arcs: (A, 3) data arcs within a step:
    source item, destination, base part (-1: the source's end). model: (S, SLOTS) number of the model called, -1 for
    none. feed: (S, SLOTS) the weights edge that feeds it, -1 for frozen models, -2 for those that the stage trains.
    edges: (E, 6) trainer, consumer, delay, class of (model, delay, freshness), place among the graph's edges, model; in
    the order of their names. rests: (S,) the stages in the order of their rests' names. profile: (S,) rows of the
    tables. bases: (B,) the generator stage of each base part. data: (K, 2) stages joined by data within a step.
    """

    kind: Ints
    first: Ints
    parts: Ints
    arcs: Ints
    model: Ints
    feed: Ints
    edges: Ints
    rests: Ints
    profile: Ints
    bases: Ints
    data: Ints


class Rows(NamedTuple):
    """The tables: options of profiles on blocks, and what they cost; rows grow as they are asked for.

    where: (profiles, kinds, units + 1, alignments, 2) first option and count, first = -1: not known yet.
    layout: (O,) number of the layout. core: (O, SLOTS, 2) place in `seconds` of items × draws, for weights that are
    copies or frozen (0) and that are the trainer's own (1); -1 for none. held: (O, SLOTS, 2, 8) bytes at the peak, of
    resting weights, of the resting rest; seconds to move weights, the rest, both; bytes at the peak where the holder
    offloads, and of the process. host: (O, SLOTS, 4) bytes of a node's host when nothing, the optimizer, all is
    offloaded, and of a process. engine: (O, 6) bytes without a cache at the peak, when generating; of the longest
    sequence; most rows; seconds to wake; bytes of the process. levels: (O, LEVELS) place in `seconds` of a generator's
    items and base parts × draws, -1: not known yet. moved: hash table (M, 2) of transfers: key (-1: none) and place in
    `seconds`.
    """

    where: Ints
    layout: Ints
    core: Ints
    held: Floats
    host: Floats
    engine: Floats
    levels: Ints
    seconds: Floats
    moved: Ints


class Site(NamedTuple):
    """The devices. capacity, share: (kinds,) bytes of a device, and the part of it that an engine may fill.

    units: (kinds,) how many there are. unit: (kinds,) devices of one. width: (kinds,) devices of a node.
    host: (kinds,) bytes of a node's host, 0 where that is unknown. draws: how many. dispatch: seconds of a call.
    """

    capacity: Floats
    share: Floats
    units: Ints
    unit: Ints
    width: Ints
    host: Floats
    draws: int
    dispatch: float


class State(NamedTuple):
    """A plan of a structure. size, kind: (I,) units and kind of each island; islands of a kind lie in a row.

    mask: (S,) bits of the islands of each stage. option, offload, shift: (S,). offload: 0 none, 1 optimizer, 2 all.
    """

    size: Ints
    kind: Ints
    mask: Ints
    option: Ints
    offload: Ints
    shift: Ints


LEVELS = 64
PER_OCTAVE = 4


class Work(NamedTuple):
    """Room to work in, for one chain. N items and A arcs at most, D draws."""

    row: Ints
    trained: Ints
    tenant: Ints
    copy: Ints
    away: Ints
    users: Ints
    item_stage: Ints
    item_kind: Ints
    item_mask: Ints
    item_shift: Ints
    duration: Floats
    mean: Floats
    offset: Floats
    offset_mean: Floats
    src: Ints
    dst: Ints
    key: Ints
    height: Ints
    head: Ints
    by_src: Ints
    rank: Floats
    ints: Ints
    floats: Floats
    sequence: Ints
    policy: Ints
    miss: Ints
    into: Ints
    weight: Floats
    uses: Ints
    sizes: Floats
    hosts: Floats
    gone: Ints
    cache: Floats
    names: Ints
    most: Floats
    places: Ints
    there: Ints
    beside: Ints


def work(shape: Shape, draws: int, islands: int) -> Work:
    """Enough for any plan of a structure."""
    stages = len(shape.kind)
    runs = int(shape.parts.sum())
    items = runs + len(shape.edges) + 2 * stages
    most = int(shape.parts.max(initial=1))
    arcs = (
        len(shape.arcs) + len(shape.edges) * (2 * most + 2) + 2 * stages * (items + 2) + items * (islands + 1)
    )
    z, most_uses = np.zeros, stages * SLOTS
    ints, floats = np.int64, np.float64
    return Work(
        z(stages, ints),
        z((stages, SLOTS), ints),
        z((stages, SLOTS), ints),
        z(max(1, len(shape.edges)), ints),
        z(stages, ints),
        z(stages, ints),
        z(items, ints),
        z(items, ints),
        z(items, ints),
        z(items, ints),
        z((items, draws), floats),
        z(items, floats),
        z((max(1, len(shape.bases)), draws), floats),
        z(max(1, len(shape.bases)), floats),
        z(arcs, ints),
        z(arcs, ints),
        z(arcs, ints),
        z(arcs, ints),
        z(items + 1, ints),
        z(arcs, ints),
        z(items, floats),
        z((16, items + islands + stages * SLOTS + 2), ints),
        z((16, items + islands + stages * SLOTS + 2), floats),
        z(items, ints),
        z(items, ints),
        z(8, ints),
        z(arcs, ints),
        z(arcs, floats),
        z((most_uses, 5), ints),
        z((most_uses, 4), floats),
        z((most_uses, 4), floats),
        z((stages, SLOTS), ints),
        z((stages, islands), floats),
        z(3 * most_uses, ints),
        z(3 * most_uses, floats),
        z(items + most_uses, ints),
        z(items, ints),
        z(stages, ints),
    )
