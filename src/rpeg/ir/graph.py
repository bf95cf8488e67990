"""The graph: an immutable value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from rpeg.errors import GraphError, nearest
from rpeg.ir.edge import Edge
from rpeg.ir.model import Model
from rpeg.ir.stage import Kind, Stage


@dataclass(frozen=True)
class Graph:
    """Models, stages and edges of one RL step and of what joins it to other steps."""

    name: str
    models: tuple[Model, ...]
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]

    def model(self, name: str) -> Model:
        """Raises GraphError for an unknown name."""
        return _find(self.models, name, "model", self.name)

    def stage(self, name: str) -> Stage:
        """Raises GraphError for an unknown name."""
        return _find(self.stages, name, "stage", self.name)

    def into(self, stage: str) -> tuple[Edge, ...]:
        return self._by_end[1].get(stage, ())

    def out_of(self, stage: str) -> tuple[Edge, ...]:
        return self._by_end[0].get(stage, ())

    @cached_property
    def _by_end(self) -> tuple[Mapping[str, tuple[Edge, ...]], Mapping[str, tuple[Edge, ...]]]:
        """The edges by their source, and by their destination; verification and search ask often."""
        out: dict[str, tuple[Edge, ...]] = {}
        into: dict[str, tuple[Edge, ...]] = {}
        for edge in self.edges:
            out[edge.src] = (*out.get(edge.src, ()), edge)
            into[edge.dst] = (*into.get(edge.dst, ()), edge)
        return out, into

    def data_into(self, stage: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.into(stage) if edge.model is None and not edge.is_control)

    def weights_into(self, stage: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.into(stage) if edge.model is not None)

    def trainer(self, model: str) -> Stage | None:
        """The stage that trains a model; None where none does."""
        return next((s for s in self.stages if s.kind is Kind.TRAIN and model in s.models), None)

    @cached_property
    def selector(self) -> Stage | None:
        """The stage that accepts or rejects samples and may ask for another round; None where all are accepted."""
        return next((self.stage(edge.src) for edge in self.edges if edge.is_control), None)

    @cached_property
    def rounds(self) -> frozenset[str]:
        """The stages that work in rounds: the selector and all that it needs within a step."""
        if self.selector is None:
            return frozenset()
        found = {self.selector.name}
        for stage in reversed(self.order()):
            if any(edge.dst in found and edge.delay == 0 for edge in self.out_of(stage.name)):
                found.add(stage.name)
        return frozenset(found)

    def generators_of(self, stage: str) -> tuple[str, ...]:
        """Where the samples begin that a stage works on: the generators, or the selector, that its data descend from
        within a step; a generator itself."""
        return self._generators_of.get(stage, ())

    @cached_property
    def _generators_of(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for stage in self.order():
            edges = (edge for edge in self.data_into(stage.name) if edge.delay == 0)
            above = (
                name
                for edge in edges
                for name in ((edge.src,) if self._selects(edge.src) else found[edge.src])
            )
            found[stage.name] = (stage.name,) if stage.kind is Kind.GENERATE else tuple(dict.fromkeys(above))
        return found

    def _selects(self, stage: str) -> bool:
        return self.selector is not None and self.selector.name == stage

    def observers(self) -> frozenset[str]:
        """Stages aside from the stream of samples: nothing depends on them, no data reach them and they do not train.

        Evaluation is one. They also see the last weights.
        """
        joined = {edge.src for edge in self.edges} | {edge.dst for edge in self.edges if edge.model is None}
        return frozenset(s.name for s in self.stages if s.name not in joined and s.kind is not Kind.TRAIN)

    def with_edges(self, edges: Iterable[Edge]) -> Graph:
        return replace(self, edges=tuple(edges))

    def order(self) -> tuple[Stage, ...]:
        """Stages so that data of one step flows forward. Raises GraphError where they cannot be ordered."""
        waiting = {
            s.name: {e.src for e in self.into(s.name) if e.delay == 0 and not e.is_control}
            for s in self.stages
        }
        done: list[str] = []
        while waiting:
            ready = [name for name, sources in waiting.items() if sources <= set(done)]
            if not ready:
                raise GraphError(
                    f"graph {self.name}: {', '.join(sorted(waiting))} wait for each other within a step"
                )
            done.append(ready[0])
            del waiting[ready[0]]
        return tuple(self.stage(name) for name in done)

    @property
    def is_ordered(self) -> bool:
        """Whether all edges join stages of the graph, and none wait for each other within a step."""
        try:
            self.order()
        except GraphError:
            return False
        known = {stage.name for stage in self.stages}
        return all({edge.src, edge.dst} <= known for edge in self.edges)


T = TypeVar("T", Model, Stage)


def _find(items: tuple[T, ...], name: str, what: str, graph: str) -> T:
    for item in items:
        if item.name == name:
            return item
    raise GraphError(f"graph {graph} has no {what} '{name}'. {nearest(name, (item.name for item in items))}")
