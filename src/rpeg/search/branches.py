"""Walks in two branches, each with tables of its own: side by side where the system can fork, with the same result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rpeg.search.anneal import Found, Search
from rpeg.search.beside import Beside
from rpeg.search.budget import Budget
from rpeg.search.core.layout import State
from rpeg.search.walk import walk
from rpeg.transforms import parse_all

Walk = tuple[Found, int]
"""Where a chain begins, and its seed."""


@dataclass(frozen=True)
class _Told:
    """What a branch found, with the chain of transforms of each instead of its structure; plans evaluated."""

    found: tuple[tuple[str, tuple[str, ...], State, float, float], ...]
    evaluations: int


def walked(search: Search, chains: Sequence[Walk], budget: Budget) -> list[Found]:
    """All that the chains come by. Every second one is in a branch that does not know what the others asked."""
    own, other = chains[0::2], chains[1::2]
    if not other:
        return _walked(search, own, budget)
    branch = search.branch()
    beside = Beside(lambda: _told(branch, other, budget))
    found = _walked(search, own, budget)
    told = beside.result()
    search.progress.evaluations += told.evaluations
    for name, applied, state, seconds, short in told.found:
        structure = search.structure(parse_all(applied))
        if structure is not None:
            found.append(Found(name, structure, state, seconds, short))
    return found


def _walked(search: Search, chains: Sequence[Walk], budget: Budget) -> list[Found]:
    return [found for start, seed in chains for found in walk(search, start, budget, seed)]


def _told(branch: Search, chains: Sequence[Walk], budget: Budget) -> _Told:
    rows = tuple(
        (one.name, tuple(map(str, one.structure.applied)), one.state, one.seconds, one.short)
        for one in _walked(branch, chains, budget)
    )
    return _Told(rows, branch.progress.evaluations)
