"""Streaming: finished responses flow on in parts while longer ones still generate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError, nearest
from rpeg.ir import Chunk, Graph, Kind, Unit, verify
from rpeg.transforms.base import Changes, Transform


@dataclass(frozen=True)
class Streaming(Transform):
    """Lets every assessment that can work on parts take them, `chunk` units at a time, as they leave generation.

    unit: `sample` or `group`. Stages that must see more (group statistics, batch whitening) still take the whole.
    """

    name: ClassVar[str] = "stream"
    changes: ClassVar[Changes] = Changes.SCHEDULE

    chunk: int
    unit: str = "sample"

    def __post_init__(self) -> None:
        if self.unit not in (Unit.SAMPLE, Unit.GROUP):
            raise GraphError(
                f"{self}: parts of '{self.unit}' are unknown. {nearest(self.unit, (Unit.SAMPLE, Unit.GROUP))}"
            )
        if self.chunk < 1:
            raise GraphError(f"{self}: parts of {self.chunk}; at least 1")

    def apply(self, graph: Graph) -> Graph:
        unit = Unit(self.unit)
        takers = _takers(graph, unit)
        if not takers:
            raise GraphError(f"{self}: no stage of {graph.name} can work on a {self.unit} alone")
        chunk = Chunk(self.chunk, unit)
        edges = (replace(e, chunk=chunk) if e.model is None and e.dst in takers else e for e in graph.edges)
        changed = verify(graph.with_edges(edges))
        if changed == graph:
            raise GraphError(f"{self}: {graph.name} streams like that already")
        return changed

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Sizes in powers of two, by sample and by group; the plan's batch bounds them further."""
        for unit in (Unit.SAMPLE, Unit.GROUP):
            if _takers(graph, unit):
                yield from (cls(2**i, str(unit)) for i in range(10))


def _takers(graph: Graph, unit: Unit) -> frozenset[str]:
    """Stages that can take parts of this unit: all that they need can come in parts too, back to a generator."""
    takers: set[str] = set()
    for stage in graph.order():
        edges = graph.data_into(stage.name)
        if stage.kind in (Kind.GENERATE, Kind.TRAIN) or not edges or stage.scope > unit.covers:
            continue
        sources = [graph.stage(edge.src) for edge in edges]
        if all(source.kind is Kind.GENERATE or source.name in takers for source in sources):
            takers.add(stage.name)
    return frozenset(takers)
