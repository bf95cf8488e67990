"""Responses that one replica of a generator begins and another finishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rpeg.plan import Item, Lowered, Plan, Task, ids_to_generate
from rpeg.sim.costs import Batch, Completions, Costs
from rpeg.sim.lengths import Draws
from rpeg.sim.stream import departures


@dataclass(frozen=True)
class Generated:
    """A generator's item: how long it takes, and what leaves it when. batch: as the generator meets it.

    parts: of each base part its number, the seconds from the start until it leaves, and its samples. begun: of the
    samples that it hands over, the tokens that it has made of each.
    """

    seconds: float
    batch: Batch
    parts: tuple[tuple[int, float, Batch], ...]
    begun: Mapping[int, int] = field(default_factory=dict)


def finished(plan: Plan, lowered: Lowered, costs: Costs, draws: Draws, item: Item) -> Batch:
    """The samples that an item which hands over its last ones finishes itself."""
    parts = generated(plan, lowered, costs, draws, item).parts
    return draws.batch(tuple(sorted(i for _, _, members in parts for i in members.ids)))


def generated(
    plan: Plan, lowered: Lowered, costs: Costs, draws: Draws, item: Item, ids: tuple[int, ...] | None = None
) -> Generated:
    """ids: the samples of an item that finishes what others have begun, where they are known already."""
    task = lowered.tasks[item.slot]
    if not task.finishes:
        batch = draws.batch(ids_to_generate(task, plan.workload, item.step))
        return _item(plan, lowered, task, batch, batch, costs.generation(item, batch))
    others = [t for t in lowered.tasks_of(item.name) if t.hands_over]
    begun: dict[int, int] = {}
    for other in others:
        begun.update(generated(plan, lowered, costs, draws, other.slot.at(item.step)).begun)
    batch = draws.batch(tuple(sorted(begun)) if ids is None else ids)
    met = batch.going_on(begun)
    return _item(plan, lowered, task, batch, met, costs.generation(item, met))


def _item(plan: Plan, lowered: Lowered, task: Task, batch: Batch, met: Batch, done: Completions) -> Generated:
    left = departures(plan, task.slot.name, [lowered.parts[part] for part in task.covers], batch, done)
    parts = tuple(
        (part, offset, batch.take(positions))
        for part, (offset, positions) in zip(task.covers, left, strict=True)
    )
    if not task.hands_over:
        return Generated(done.seconds, met, parts)
    end = max((offset for _, offset, _ in parts), default=0.0)
    gone = {i for _, _, members in parts for i in members.ids}
    return Generated(end, batch, parts, _begun(batch, done, end, gone))


def _begun(batch: Batch, done: Completions, end: float, gone: set[int]) -> dict[int, int]:
    """Tokens of each response at a moment, as if each had come at an even pace from the start on."""
    offsets = np.asarray(done.offset_seconds, dtype=np.float64)
    share = np.minimum(1.0, end / np.maximum(offsets, np.finfo(np.float64).tiny))
    tokens = np.minimum(np.floor(batch.lengths[1] * share), np.maximum(batch.lengths[1] - 1, 0))
    return {i: int(n) for i, n in zip(batch.ids, tokens.tolist(), strict=True) if i not in gone}
