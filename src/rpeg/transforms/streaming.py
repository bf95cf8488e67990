"""Streaming: finished responses flow on in parts while longer ones still generate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError, nearest
from rpeg.ir import Chunk, Edge, Graph, Kind, Unit, verify
from rpeg.transforms.base import Changes, Transform


@dataclass(frozen=True)
class Streaming(Transform):
    """Lets every assessment that can work on parts take them, `chunk` units at a time, as they leave generation.

    unit: `sample` or `group`. Stages that must see more (group statistics, batch whitening) still take the whole. Or
    `minibatch`: trainers begin each minibatch when its members are ready; who they are comes from (seed, step).
    """

    name: ClassVar[str] = "stream"
    changes: ClassVar[Changes] = Changes.SCHEDULE

    chunk: int
    unit: str = "sample"

    def __post_init__(self) -> None:
        if self.unit not in tuple(Unit):
            raise GraphError(f"{self}: parts of '{self.unit}' are unknown. {nearest(self.unit, Unit)}")
        if self.chunk < 1:
            raise GraphError(f"{self}: parts of {self.chunk}; at least 1")

    @property
    def words(self) -> str:
        if self.unit == Unit.MINIBATCH:
            return "trainers begin a minibatch when its members are ready"
        return f"responses flow on, {self.chunk} {self.unit}s at a time, while longer ones generate"

    def apply(self, graph: Graph) -> Graph:
        unit = Unit(self.unit)
        takers = _takers(graph, unit)
        if not takers:
            raise GraphError(f"{self}: no stage of {graph.name} can work on a {self.unit} alone")
        chunk = Chunk(self.chunk, unit)
        changed = verify(graph.with_edges(_streamed(e, takers, chunk) for e in graph.edges))
        if changed == graph:
            raise GraphError(f"{self}: {graph.name} streams like that already")
        return changed

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Sizes in powers of two, by sample and by group, bounded further by the plan's batch; minibatches one by one."""
        sizes = [(2**i, unit) for unit in (Unit.SAMPLE, Unit.GROUP) for i in range(10)]
        takers = {unit: _takers(graph, unit) for unit in Unit}
        for count, unit in (*sizes, (1, Unit.MINIBATCH)):
            chunk = Chunk(count, unit)
            if takers[unit] and any(_streamed(e, takers[unit], chunk) != e for e in graph.edges):
                yield cls(count, str(unit))


def _streamed(edge: Edge, takers: frozenset[str], chunk: Chunk) -> Edge:
    """A data edge in the new parts, if it leads to a taker; one of earlier parts of this kind takes the whole again."""
    if edge.model is not None:
        return edge
    if edge.dst in takers:
        return replace(edge, chunk=chunk)
    by_minibatch = edge.chunk is not None and edge.chunk.unit is Unit.MINIBATCH
    return replace(edge, chunk=None) if by_minibatch is (chunk.unit is Unit.MINIBATCH) else edge


def _takers(graph: Graph, unit: Unit) -> frozenset[str]:
    """Stages that can take parts of this unit: all that they need can come in parts too, back to a generator.

    A minibatch is drawn from the whole step, so that any trainer can take it.
    """
    if graph.selector is not None:  # what is accepted is known by rounds
        return frozenset()
    if unit is Unit.MINIBATCH:
        return frozenset(s.name for s in graph.stages if s.kind is Kind.TRAIN)
    takers: set[str] = set()
    for stage in graph.order():
        edges = graph.data_into(stage.name)
        if (
            stage.kind in (Kind.GENERATE, Kind.TRAIN)
            or not edges
            or stage.scope > unit.covers
            or stage.parts > 1
        ):
            continue
        if len(graph.generators_of(stage.name)) > 1:
            continue
        sources = [graph.stage(edge.src) for edge in edges]
        if all(source.kind is Kind.GENERATE or source.name in takers for source in sources):
            takers.add(stage.name)
    return frozenset(takers)
