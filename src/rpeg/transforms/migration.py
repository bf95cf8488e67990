"""Migration: the last, long responses of a generator's replicas are finished on one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError
from rpeg.ir import Graph, Kind, verify
from rpeg.transforms.base import Changes, Transform


@dataclass(frozen=True)
class Migration(Transform):
    """Lets the last `responses` responses of `stage`, as many of each replica, be finished on the first replica.

    Few rows cost a decode step hardly less than one: the devices of the other replicas are free that much earlier, and
    score what is finished. RLHFuse (arXiv:2409.13221, section 4) migrates long-tailed samples for that.
    """

    name: ClassVar[str] = "migrate"
    changes: ClassVar[Changes] = Changes.SCHEDULE

    stage: str
    responses: int

    def __post_init__(self) -> None:
        if self.responses < 1:
            raise GraphError(f"{self}: {self.responses} responses; at least 1")

    @property
    def words(self) -> str:
        return f"the last {self.responses} responses of {self.stage}'s replicas are finished on one of them"

    def apply(self, graph: Graph) -> Graph:
        stage = graph.stage(self.stage)
        if stage.migrates == self.responses:
            raise GraphError(f"{self}: so many of {self.stage} migrate already")
        changed = replace(stage, migrates=self.responses)
        try:
            return verify(replace(graph, stages=tuple(changed if s == stage else s for s in graph.stages)))
        except GraphError as error:
            raise GraphError(f"{self}: {error}") from None

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Powers of two for every generator of samples; the plan's replicas bound them further."""
        for stage in graph.stages:
            if stage.kind is Kind.GENERATE and cls(stage.name, 2).applies(graph):
                yield from (cls(stage.name, 2**i) for i in range(1, 8) if 2**i != stage.migrates)
