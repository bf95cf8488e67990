"""How far the quota of each step is filled, and so which of its reserved rounds there is no need for."""

from __future__ import annotations

from rpeg.ir import Graph
from rpeg.plan import Item, ItemKind
from rpeg.workload import Workload


class Quota:
    """Samples that the selector of a graph has accepted, by step; without a selector there is nothing to count."""

    def __init__(self, graph: Graph, workload: Workload) -> None:
        self._rounds, self._selector = graph.rounds, graph.selector
        self._samples = workload.samples
        self._accepted: dict[int, int] = {}

    def selects(self, item: Item) -> bool:
        """Whether an item accepts and rejects."""
        runs = item.kind is ItemKind.RUN
        return runs and self._selector is not None and item.name == self._selector.name

    def accept(self, step: int, samples: int) -> None:
        self._accepted[step] = self._accepted.get(step, 0) + samples

    def wanted(self, step: int) -> int:
        """Samples that a step still lacks."""
        return self._samples - self._accepted.get(step, 0)

    def has_no_use_for(self, item: Item) -> bool:
        """Whether it belongs to a round that begins after the quota was filled; known when its inputs are there."""
        later = item.kind is ItemKind.RUN and item.name in self._rounds and item.part > 0
        return later and self.wanted(item.step) <= 0

    def forget(self, limit: int) -> None:
        """Drops steps before `limit`."""
        self._accepted = {step: count for step, count in self._accepted.items() if step >= limit}
