"""Bounded asynchrony: a consumer of weights may use a version that is up to `staleness` publications old."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError, nearest
from rpeg.ir import Freshness, Graph, Kind, verify
from rpeg.transforms.base import Changes, Transform


@dataclass(frozen=True)
class BoundedAsynchrony(Transform):
    """Raises the delay of the weights edges into `stage` to 1 + staleness.

    stage: a generation or assessment stage. freshness: `exact` always uses the oldest version allowed, so that a run
    can be replayed; `latest` the newest that has arrived.
    """

    name: ClassVar[str] = "async"
    changes: ClassVar[Changes] = Changes.STALENESS
    permission: ClassVar[str] = "staleness"

    stage: str = "generate"
    staleness: int = 1
    freshness: str = "exact"

    def __post_init__(self) -> None:
        if self.staleness < 1:
            raise GraphError(f"{self}: staleness {self.staleness}; asynchrony begins at 1")
        if self.freshness not in tuple(Freshness):
            raise GraphError(
                f"{self}: freshness '{self.freshness}' is unknown. {nearest(self.freshness, Freshness)}"
            )

    @property
    def words(self) -> str:
        return f"{self.stage} need not wait for the newest weights"

    @property
    def learning(self) -> str:
        return (
            f"{self.stage} uses weights up to {self.staleness} update{'s' if self.staleness > 1 else ''} old"
        )

    def apply(self, graph: Graph) -> Graph:
        stage = graph.stage(self.stage)
        if stage.kind not in (Kind.GENERATE, Kind.INFERENCE):
            raise GraphError(
                f"{self}: {self.stage} is {stage.kind}; only generation and assessment may use older weights"
            )
        targets = {e for e in graph.weights_into(self.stage) if e.delay < 1 + self.staleness}
        if not targets:
            raise GraphError(f"{self}: no weights edge into {self.stage} is fresher than that already")
        freshness = Freshness(self.freshness)
        changed = {e: replace(e, delay=1 + self.staleness, freshness=freshness) for e in targets}
        return verify(graph.with_edges(changed.get(e, e) for e in graph.edges))

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """One step more staleness for every stage that could have it; observers stay as they are."""
        for stage in graph.stages:
            if stage.kind not in (Kind.GENERATE, Kind.INFERENCE) or stage.name in graph.observers():
                continue
            delays = [e.delay for e in graph.weights_into(stage.name)]
            if delays:
                yield cls(stage.name, max(delays), "exact")
