"""`Timeline`: which samples a replica works on at each step, from the lengths that were drawn.

A step gives every running sample a token, so that in steps (not in seconds) the course of a replica depends on
lengths and on the number of places alone: list scheduling. Seconds are put to it afterwards.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """Samples of equal replicas, one replica a row; where one has fewer samples, some of length 0 fill its row.

    prompts, starts, ends: (replicas, samples): tokens of the prompt; steps done before a sample's first and after its
    last token.
    """

    prompts: Ints
    starts: Ints
    ends: Ints

    @property
    def steps(self) -> Ints:
        """(replicas,) steps until each replica is done."""
        return np.asarray(self.ends.max(axis=1, initial=0))


@dataclass(frozen=True)
class Intervals:
    """Stretches of steps, (replicas, intervals) each: number of steps, mean rows, and mean tokens in a row's cache.

    edges: (replicas, intervals + 1) the steps between which they lie.
    """

    edges: Floats
    steps: Floats
    rows: Floats
    context: Floats


def timeline(prompts: Ints, responses: Ints, places: int) -> Timeline:
    """Samples enter in the order of their row as places get free. prompts, responses: (replicas, samples)."""
    replicas, samples = responses.shape
    starts = np.zeros_like(responses)
    if samples > places:
        for row in range(replicas):
            starts[row, places:] = _later_starts(responses[row], places)
    return Timeline(prompts, starts, starts + responses)


def _later_starts(lengths: Ints, places: int) -> list[int]:
    free = lengths[:places].tolist()
    heapq.heapify(free)
    replace = heapq.heapreplace
    return [replace(free, free[0] + length) for length in lengths[places:].tolist()]


def intervals(line: Timeline, count: int) -> Intervals:
    """The course of each replica in about `count` stretches, with exact means over each.

    Half of the edges lie at equal steps and half at quantiles of the ends, where the set of running samples changes.
    With r(s) samples running after s steps, row-steps W(s) = ∫ r and tokens read K(s) = ∫ r · context have closed
    forms in sums over the samples that have started and ended; a stretch's means are their differences.
    """
    order, ends = _sorted(line.ends)
    edges = _edges(ends, count)
    last = np.take_along_axis(line.prompts + line.ends - line.starts, order, axis=1)
    ended, grown = _integrals(ends, last, edges)
    if line.starts.any():
        begun, read = _integrals(line.starts, line.prompts, edges)
    else:
        begun = line.starts.shape[1] * edges
        total = line.prompts.sum(axis=1, dtype=np.float64)[:, None]
        read = total * edges + line.starts.shape[1] * edges**2 / 2
    rows_steps, tokens = np.diff(begun - ended, axis=1), np.diff(read - grown, axis=1)
    steps = np.diff(edges, axis=1)
    rows = np.divide(rows_steps, steps, out=np.zeros_like(steps), where=steps > 0)
    context = np.divide(tokens, rows_steps, out=np.zeros_like(steps), where=rows_steps > 0)
    return Intervals(edges, steps, np.maximum(rows, 0.0), np.maximum(context, 0.0))


def _sorted(values: Ints) -> tuple[Ints, Ints]:
    """Order and sorted values of each row; one integer sort is several times faster than an argsort."""
    width = int(values.shape[1]).bit_length()
    keys = np.sort((values << width) + np.arange(values.shape[1]), axis=1)
    return keys & ((1 << width) - 1), keys >> width


def _edges(ends: Ints, count: int) -> Floats:
    half = max(2, count // 2)
    at = np.linspace(0, ends.shape[1] - 1, half).astype(np.int64)
    even = np.linspace(0.0, 1.0, half) * ends[:, -1:]
    edges: Floats = np.sort(np.concatenate([even, ends[:, at].astype(np.float64)], axis=1), axis=1)
    return edges


def _integrals(events: Ints, tokens: Ints, edges: Floats) -> tuple[Floats, Floats]:
    """Σ (s − e) and Σ tokens · (s − e) + (s − e)² / 2 over the events e ≤ s, for each edge s.

    events: (replicas, n) sorted. tokens: (replicas, n) that each event's sample holds then.
    """
    replicas = len(events)
    at, held = events.astype(np.float64), tokens.astype(np.float64)
    passed = _counts(at, edges)
    terms = (at, at * at, held, held * at)
    time, square, token, product = (
        np.take_along_axis(np.concatenate([np.zeros((replicas, 1)), np.cumsum(x, axis=1)], axis=1), passed, 1)
        for x in terms
    )
    first = passed * edges - time
    return first, token * edges - product + (passed * edges**2 - 2 * edges * time + square) / 2


def _counts(events: Floats, edges: Floats) -> Ints:
    """How many events of each row are ≤ each edge of the row."""
    replicas, n = events.shape
    apart = (max(events.max(), edges.max()) + 1.0) * np.arange(replicas)[:, None]
    counts = np.searchsorted((events + apart).ravel(), (edges + apart).ravel(), side="right")
    return np.asarray(counts.reshape(edges.shape) - n * np.arange(replicas)[:, None], np.int64)
