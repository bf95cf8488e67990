"""The arrays that the core works on, of 64-bit numbers. Indices of stages follow the stages' names, as lane orders do."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

HOST, GENERATE, INFERENCE, TRAIN = 0, 1, 2, 3
RUN, TRANSFER, RELOAD, OFFLOAD = 0, 1, 2, 3
OK, INVALID, MISSING_OPTIONS, MISSING_LEVEL, MISSING_TRANSFER = 0, 1, 2, 3, 4
"""What an evaluation answers: a step, no plan, or which row of the tables is missing."""

SLOTS, MOST_STAGES, MOST_EDGES = 4, 24, 64
"""Most models that one stage calls; most stages and weights edges of a structure."""

LEVELS, PER_OCTAVE = 64, 2
"""Sizes of an engine's cache: from its longest sequence in steps of a quarter octave."""


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
    layout: (O,) number of the layout. holds: (O,) number of what weights it has where: transfers are by pairs of these.
    least: (O,) mean seconds of all items at least, 0 where that is not known. work: (profiles, kinds) the least of that
    times units among all options known. core: (O, SLOTS, 2) place in `seconds` of items × draws, for weights that are
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
    holds: Ints
    least: Floats
    work: Floats
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
