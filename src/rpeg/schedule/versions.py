"""Which versions of the trained models there are, and which of them each copy holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rpeg.ir import Freshness, Graph, Kind
from rpeg.plan import Item, ItemKind, Lowered, Task
from rpeg.schedule.messages import SyncWeights


class Versions:
    """Before the run each trained model has version `first_step`, and its copies what `Copy.version_before` says."""

    def __init__(self, graph: Graph, lowered: Lowered, first_step: int) -> None:
        self._graph, self._lowered, self._first_step = graph, lowered, first_step
        self._published = {m.name: first_step for m in graph.models if m.trainable}
        self._held: dict[tuple[str, int], int] = {}
        self._trained = {s.name: s.models for s in graph.stages if s.kind is Kind.TRAIN}
        self._copies = {copy.name: copy for copy in lowered.copies}
        self._transfers = Counter(s.name for s in lowered.tasks if s.kind is ItemKind.TRANSFER)

    @property
    def published(self) -> Mapping[str, int]:
        """The newest version of each trainable model."""
        return dict(self._published)

    def on_finished(self, item: Item) -> None:
        """The last item of a trainer's step publishes."""
        if item.name in self._trained and self._lowered.ends(item.slot):
            self._published.update(dict.fromkeys(self._trained[item.name], item.step + 1))

    def sync(self, item: Item, task: Task) -> SyncWeights:
        """The command that brings a copy to the version that its bound asks for."""
        copy = self._copies[item.name]
        newest = min(self._published[copy.model], max(item.step, self._first_step))
        version = copy.version_before(item.step) if copy.freshness is Freshness.EXACT else newest
        self._held[item.name, item.replica] = version
        return SyncWeights(item, task.lanes, copy.model, version)

    def read_by(self, item: Item) -> tuple[tuple[str, int], ...]:
        """(model, version) of each trainable model that an item of a stage reads."""
        found: list[tuple[str, int]] = []
        for model in self._graph.stage(item.name).models:
            if model not in self._published:
                continue
            copy = self._lowered.copy_for(item.name, model)
            if copy is None:
                found.append((model, self._published[model]))
            else:
                replica = item.replica if self._transfers[copy.name] > 1 else 0
                before = copy.version_before(self._first_step)
                found.append((model, self._held.get((copy.name, replica), before)))
        return tuple(found)
