"""`Choices`: what a stage takes by itself on described hardware, under many assignments and of many batches at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Head
from rpeg.cost.training import Layouts, Lengths
from rpeg.ir import Kind
from rpeg.sim.costs import Batch
from rpeg.sim.hardware.alone import Alone
from rpeg.sim.hardware.costs import asked_heads, fetch_seconds, fetched_bytes, updates_of

Floats = npt.NDArray[np.float64]


class Choices:
    """A stage that trains or scores, on one block under each of these assignments, with each of these batches.

    alone: at least one, all of the same stage of the same graph, under layouts that can run.
    """

    def __init__(self, alone: Sequence[Alone], batches: Sequence[Batch]) -> None:
        self._alone, one = alone, alone[0]
        self._fetched = np.array([fetched_bytes(one.graph, one.stage, batch) for batch in batches])
        work = _trained if one.stage.kind is Kind.TRAIN else _scored
        self._layouts = work(alone, Lengths.of([batch.sequences for batch in batches]), batches)

    def least_seconds(self, i: int) -> float:
        """Of assignment i and the first batch, no more than `seconds` has; costs next to nothing."""
        return sum(float(layouts.least_seconds(i)[0]) for _, layouts in self._layouts)

    def seconds(self, i: int) -> Floats:
        """(models, batches) of assignment i; what every item takes counts with the first model."""
        one = self._alone[i]
        found = np.zeros((len(one.stage.models), len(self._fetched)))
        for model, layouts in self._layouts:
            found[one.stage.models.index(model)] += layouts.seconds(i)
        fetched = fetch_seconds(one.stage, one.assignment, one.site, self._fetched)
        found[0] += np.where(self._fetched > 0, fetched, 0.0)
        return found


def _scored(alone: Sequence[Alone], lengths: Lengths, batches: Sequence[Batch]) -> list[tuple[str, Layouts]]:
    """By call, the model that it asks."""
    one, found = alone[0], []
    for call in one.stage.calls:
        assert call.model is not None
        executions = [each.execution(call.model in one.trained) for each in alone]
        architecture, heads = one.facts.architectures[call.model], asked_heads(one.graph, call)
        found.append((call.model, Layouts(architecture, lengths, executions, one.machine, heads=heads)))
    return found


def _trained(alone: Sequence[Alone], lengths: Lengths, batches: Sequence[Batch]) -> list[tuple[str, Layouts]]:
    """By model."""
    one, w = alone[0], alone[0].workload
    updates = np.array([float(updates_of(w, batch)) for batch in batches])
    every = Lengths(
        lengths.tokens * w.epochs, lengths.squares * w.epochs, lengths.longest, lengths.scored * w.epochs
    )
    executions, found = [each.execution(True) for each in alone], []
    for model in one.stage.models:
        heads = cast("tuple[Head, ...]", one.graph.model(model).heads)
        architecture = one.facts.architectures[model]
        found.append(
            (model, Layouts(architecture, every, executions, one.machine, heads=heads, updates=updates))
        )
    return found
