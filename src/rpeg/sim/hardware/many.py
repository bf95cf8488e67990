"""`seconds_of`: what a stage takes by itself on described hardware, of many assignments and batches at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Head
from rpeg.cost.training import Lengths, infer_seconds, train_seconds
from rpeg.ir import Kind
from rpeg.sim.costs import Batch
from rpeg.sim.hardware.alone import Alone
from rpeg.sim.hardware.costs import asked_heads, fetch_seconds, fetched_bytes, updates_of

Floats = npt.NDArray[np.float64]


def seconds_of(alone: Sequence[Alone], batches: Sequence[Batch]) -> Floats:
    """(assignments, models, batches) seconds of a stage that trains or scores; what every item takes counts with the
    first model.

    alone: one stage of one graph, on the same block, under layouts that can run.
    """
    one, lengths = alone[0], Lengths.of([batch.sequences for batch in batches])
    work = _trained if one.stage.kind is Kind.TRAIN else _scored
    seconds = work(alone, lengths, batches)
    sizes = np.array([fetched_bytes(one.graph, one.stage, batch) for batch in batches])
    for i, each in enumerate(alone):
        fetched = fetch_seconds(one.stage, each.assignment, each.site, sizes)
        seconds[i, 0] += np.where(sizes > 0, fetched, 0.0)
    return seconds


def _scored(alone: Sequence[Alone], lengths: Lengths, batches: Sequence[Batch]) -> Floats:
    one = alone[0]
    models = one.stage.models
    out = np.zeros((len(alone), len(models), len(batches)))
    for call in one.stage.calls:
        assert call.model is not None
        trained = call.model in one.trained
        out[:, models.index(call.model)] += infer_seconds(
            one.facts.architectures[call.model],
            lengths,
            [each.execution(trained) for each in alone],
            one.machine,
            heads=asked_heads(one.graph, call),
        )
    return out


def _trained(alone: Sequence[Alone], lengths: Lengths, batches: Sequence[Batch]) -> Floats:
    one, w = alone[0], alone[0].workload
    updates = np.array([float(updates_of(w, batch)) for batch in batches])
    every = Lengths(
        lengths.tokens * w.epochs, lengths.squares * w.epochs, lengths.longest, lengths.scored * w.epochs
    )
    executions = [each.execution(trained=True) for each in alone]
    found = [
        train_seconds(
            one.facts.architectures[model],
            every,
            executions,
            one.machine,
            updates=updates,
            heads=cast("tuple[Head, ...]", one.graph.model(model).heads),
        )
        for model in one.stage.models
    ]
    return np.stack(found, axis=1)
