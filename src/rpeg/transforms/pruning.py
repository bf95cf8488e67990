"""Pruning: what the objective does not need goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError
from rpeg.ir import Call, Graph, Kind, Stage, verify
from rpeg.transforms.base import Changes, Transform
from rpeg.transforms.merging import without


@dataclass(frozen=True)
class Pruning(Transform):
    """Removes `stage`, where no update changes by that.

    Either nobody takes what it gives (a reference without KL), and it goes with the frozen models that only it called;
    or only the trainer of its model takes it, on the weights that the trainer begins the step with (old
    log-probabilities): then its ops move into the trainer, whose own forward gives them. `plan.check` holds such a
    trainer to one update a step, after which its weights are others.
    """

    name: ClassVar[str] = "prune"
    changes: ClassVar[Changes] = Changes.SCHEDULE

    stage: str

    @property
    def words(self) -> str:
        return f"{self.stage} is left out, where no update needs it"

    def apply(self, graph: Graph) -> Graph:
        stage = graph.stage(self.stage)
        if _is_dead(graph, stage):
            return verify(without(graph, stage))
        trainer = _trainer_that_could_give(graph, stage)
        if trainer is None:
            takers = ", ".join(dict.fromkeys(edge.dst for edge in graph.out_of(self.stage))) or "learning"
            raise GraphError(
                f"{self}: {takers} needs {self.stage}, and no trainer could give the same itself"
            )
        return verify(_moved_into(graph, stage, trainer))

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Every stage that nobody needs, or whose ops its model's trainer could do itself."""
        for stage in graph.stages:
            if _is_dead(graph, stage) or _trainer_that_could_give(graph, stage) is not None:
                yield cls(stage.name)


def _is_dead(graph: Graph, stage: Stage) -> bool:
    assesses = stage.kind in (Kind.INFERENCE, Kind.HOST) and bool(graph.data_into(stage.name))
    return assesses and not graph.out_of(stage.name)


def _trainer_that_could_give(graph: Graph, stage: Stage) -> Stage | None:
    """The trainer of the only model called, if it alone takes what the stage gives on weights that are its own."""
    if stage.kind is not Kind.INFERENCE or len(stage.models) != 1:
        return None
    trainer = graph.trainer(stage.models[0])
    takers = {edge.dst for edge in graph.out_of(stage.name)}
    current = all(edge.delay == 1 for edge in graph.weights_into(stage.name))
    there = {edge.data for edge in graph.data_into(trainer.name)} if trainer is not None else set()
    if trainer is None or takers != {trainer.name} or not current or not stage.needs <= there:
        return None
    return trainer


def _moved_into(graph: Graph, stage: Stage, trainer: Stage) -> Graph:
    model = stage.models[0]
    calls = tuple(Call(c.model, (*stage.ops, *c.ops)) if c.model == model else c for c in trainer.calls)
    grown = replace(trainer, calls=calls)
    rest = without(graph, stage)
    stages = tuple(grown if s == trainer else s for s in rest.stages)
    return replace(rest, stages=stages)
