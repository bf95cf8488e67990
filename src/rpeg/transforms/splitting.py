"""Batch splitting: a stage's batch in parts that downstream stages may start on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError
from rpeg.ir import Graph, Kind, Scope, Stage, verify
from rpeg.transforms.base import Changes, Transform

PARTS = (2, 4, 8)


@dataclass(frozen=True)
class Splitting(Transform):
    """Lets `stage` work through its batch in `parts` parts of whole groups, by the order of prompts.

    Unlike those of a stream its parts are known before anything runs. A stage that takes its data and is split too may
    start on a part as soon as the samples of that are there; one that is not waits for all.
    """

    name: ClassVar[str] = "split"
    changes: ClassVar[Changes] = Changes.SCHEDULE

    stage: str
    parts: int

    def __post_init__(self) -> None:
        if self.parts < 2:
            raise GraphError(f"{self}: {self.parts} parts; splitting begins at 2")

    @property
    def words(self) -> str:
        return f"{self.stage} works in {self.parts} parts, which later stages may start on"

    def apply(self, graph: Graph) -> Graph:
        stage = graph.stage(self.stage)
        if stage.parts == self.parts:
            raise GraphError(f"{self}: {self.stage} has so many parts already")
        split = replace(stage, parts=self.parts)
        try:
            return verify(replace(graph, stages=tuple(split if s == stage else s for s in graph.stages)))
        except GraphError as error:
            raise GraphError(f"{self}: {error}") from None

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Powers of two for every stage that can work on some groups alone; the plan's prompts bound them further."""
        for stage in graph.stages:
            if _can_be_split(graph, stage):
                yield from (cls(stage.name, parts) for parts in PARTS if parts != stage.parts)


def _can_be_split(graph: Graph, stage: Stage) -> bool:
    if (
        stage.scope > Scope.GROUP
        or stage.name in graph.observers()
        or graph.selector is not None
        or stage.migrates
    ):
        return False
    taken = graph.data_into(stage.name)
    works = stage.kind is Kind.GENERATE or (stage.kind in (Kind.INFERENCE, Kind.HOST) and bool(taken))
    return works and all(edge.chunk is None for edge in taken)
