"""What would make a problem fit: of each kind of change the smallest that does, found by trying."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rpeg.cluster import device_kinds, kind_named, node_devices, systems_of
from rpeg.errors import InputError
from rpeg.search.changes import (
    Change,
    Devices,
    MaxResponse,
    Memory,
    Microbatch,
    OfKind,
    Prompts,
    SharedBackbone,
)
from rpeg.search.infeasible import Infeasible
from rpeg.search.problem import Problem

Fits = Callable[[Problem], bool]

MOST_TIMES = 64
"""As many times the devices, or the memory, are tried at most."""

PARTS = 64
"""Steps in which a size that can be had in any amount is changed: memory, and tokens of the longest response."""

LARGER = 1.05
"""As many times the memory another kind has at least: drivers keep some per cent, more here and less there."""


@dataclass(frozen=True)
class Ladder:
    """Changes of one kind, the smallest first. between: those that lie between a rung and the one before, likewise.

    rising: what a rung brings, larger ones bring too: where the last does not work, none does.
    """

    rungs: Sequence[Change]
    between: Callable[[int], Sequence[Change]] = lambda rung: ()
    rising: bool = True


def ways_out(
    found: Infeasible, fits: Fits, report: Callable[[str], None] = lambda words: None
) -> Iterator[Change]:
    """For a problem that no plan fits: the smallest change of each kind after which one does, the cheapest kind first.

    Each fits, and the next smaller one of its kind does not. fits: whether a plan can be had.
    report: is told what is being tried.
    """
    problem = found.problem

    def works(change: Change) -> bool:
        try:
            changed = change.apply(problem)
        except InputError:
            return False
        report(change.words(problem))
        return fits(changed)

    ladders = _to_hold(problem) if found.shortage else _to_divide(problem)
    yield from filter(None, (smallest(ladder, works) for ladder in ladders))


def smallest(ladder: Ladder, works: Callable[[Change], bool]) -> Change | None:
    """The first rung that works, or what works below it and above the one before; None where no rung does.

    What is between two rungs is halved: the one before the answer does not work, whatever the others do.
    """
    if ladder.rising and not (ladder.rungs and works(ladder.rungs[-1])):
        return None
    for rung, change in enumerate(ladder.rungs):
        if works(change):
            finer = (*ladder.between(rung), change)
            low, high = -1, len(finer) - 1
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if works(finer[middle]) else (middle, high)
            return finer[high]
    return None


def _to_hold(problem: Problem) -> Iterator[Ladder]:
    """What needs less memory or brings more, from what costs little to what changes what is learned."""
    if problem.is_local:
        yield Ladder([Devices(n) for n in range(len(problem.cluster) - 1, 0, -1)])
        yield _memory(problem)
    else:
        yield Ladder([Microbatch(n) for n in _halves(problem.microbatch)])
        yield _more_devices(problem)
        yield Ladder([OfKind(name) for name in larger_kinds(problem)])
    yield Ladder([SharedBackbone()])
    yield _responses(problem)


def _to_divide(problem: Problem) -> Iterator[Ladder]:
    """What divides batches and models otherwise: the nearest numbers of devices, and larger batches."""
    own, whole = len(problem.cluster), 1 if problem.is_local else node_devices(problem.cluster)
    fewer = [Devices(n) for n in range(own - 1, 0, -1) if n < whole or n % whole == 0]
    yield Ladder(fewer, rising=False)
    if not problem.is_local:
        yield _more_devices(problem)
    yield Ladder([Prompts(n) for n in _rounder(problem)], rising=False)


def _more_devices(problem: Problem) -> Ladder:
    """Up to a whole node device by device, then node by node; from four times as many in steps that are halved."""
    own, whole = len(problem.cluster), node_devices(problem.cluster)
    part = [n for n in range(own + 1, whole) if whole % n == 0]
    nodes = max(1, own // whole)
    first = nodes + 1 if own >= whole else 1
    counts = sorted({*range(first, min(4 * nodes, first + 8) + 1), *(nodes * 2**k for k in range(2, 7))})
    rungs = [Devices(n) for n in (*part, *(whole * n for n in counts if n >= first))]

    def between(rung: int) -> Sequence[Change]:
        before = rungs[rung - 1].count if rung else own
        return [Devices(n) for n in range(before + whole, rungs[rung].count, whole) if before >= whole]

    return Ladder(rungs, between, rising=False)  # batches do not divide over every number


def larger_kinds(problem: Problem) -> list[str]:
    """Bundled kinds of more memory that some system has and that compute in the problem's dtype, smallest first."""
    own = LARGER * max(kind.usable_memory_bytes for kind in problem.cluster.kinds)
    kinds = [kind_named(name) for name in device_kinds() if name != "cpu" and systems_of(name)]
    larger = (k for k in kinds if k.usable_memory_bytes > own and problem.facts.dtype in k.peaks)
    return [kind.name for kind in sorted(larger, key=lambda k: (k.usable_memory_bytes, k.name))]


def _memory(problem: Problem) -> Ladder:
    own = problem.cluster.nodes[0].host_memory_bytes
    step = max(1, own // PARTS)
    sizes = [own * 2**k for k in range(1, MOST_TIMES.bit_length())]

    def between(rung: int) -> Sequence[Change]:
        before = sizes[rung - 1] if rung else own
        return [Memory(size) for size in range(before + step, sizes[rung], step)]

    return Ladder([Memory(size) for size in sizes], between)


def _responses(problem: Problem) -> Ladder:
    longest = problem.workload.response_lengths.maximum
    step = max(1, longest // PARTS)
    sizes = [size for size in _halves(longest) if size >= step]

    def between(rung: int) -> Sequence[Change]:
        before = sizes[rung - 1] if rung else longest
        return [MaxResponse(size) for size in range(before - step, sizes[rung], -step)]

    return Ladder([MaxResponse(size) for size in sizes], between)


def _rounder(problem: Problem) -> list[int]:
    """More prompts, in ever rounder numbers: up to as many that every device has its share of every minibatch."""
    w, found = problem.workload, list[int]()
    part = w.minibatches
    while part <= w.minibatches * 2 * len(problem.cluster):
        rounded = -(-w.prompts // part) * part
        if rounded > w.prompts and rounded not in found:
            found.append(rounded)
        part *= 2
    return found


def _halves(count: int) -> list[int]:
    return [count >> k for k in range(1, count.bit_length())]
