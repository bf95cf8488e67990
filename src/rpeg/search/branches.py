"""Walks in two branches, each with tables of its own: side by side where the system can fork, with the same result."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection

import numpy as np

from rpeg.search.anneal import Found, Search
from rpeg.search.budget import Budget
from rpeg.search.core.layout import State
from rpeg.search.walk import walk
from rpeg.transforms import parse_all

Walk = tuple[Found, int]
"""Where a chain begins, and its seed."""


def walked(search: Search, chains: Sequence[Walk], budget: Budget) -> list[Found]:
    """All that the chains come by. Every second one is in a branch that does not know what the others asked."""
    own, other = chains[0::2], chains[1::2]
    branch = search.branch()
    if not other or "fork" not in multiprocessing.get_all_start_methods():
        return [*_walked(search, own, budget), *_walked(branch, other, budget)]
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_tell, args=(there, branch, other, budget), daemon=True)
    child.start()
    there.close()
    found = _walked(search, own, budget)
    try:
        told = json.loads(here.recv_bytes())
    except EOFError:  # the child is gone: its part is done here
        return [*found, *_walked(branch, other, budget)]
    child.join()
    search.progress.evaluations += told["evaluations"]
    return [*found, *(one for row in told["found"] if (one := _read(search, row)) is not None)]


def _walked(search: Search, chains: Sequence[Walk], budget: Budget) -> list[Found]:
    return [found for start, seed in chains for found in walk(search, start, budget, seed)]


def _tell(there: Connection, branch: Search, chains: Sequence[Walk], budget: Budget) -> None:
    """In a process of its own, which ends with its parent, and which leaves it to that to tell of an interrupt."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent, rows = os.getppid(), list[dict[str, object]]()
    for start, seed in chains:
        for found in walk(branch, start, budget, seed):
            rows.append(_row(found))
            if os.getppid() != parent:
                return
    there.send_bytes(json.dumps({"evaluations": branch.progress.evaluations, "found": rows}).encode())


def _row(found: Found) -> dict[str, object]:
    return {
        "name": found.name,
        "applied": [str(transform) for transform in found.structure.applied],
        "state": [array.tolist() for array in found.state],
        "seconds": found.seconds,
        "short": found.short,
    }


def _read(search: Search, row: dict[str, object]) -> Found | None:
    structure = search.structure(parse_all(row["applied"]))  # type: ignore[arg-type]
    if structure is None:
        return None
    state = State(*(np.array(values, np.int64) for values in row["state"]))  # type: ignore[attr-defined]
    return Found(row["name"], structure, state, row["seconds"], row["short"])  # type: ignore[arg-type]
