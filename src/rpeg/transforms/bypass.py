"""Bypassing old log-probabilities: those that the generator noted as it sampled stand in for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError
from rpeg.ir import Call, Graph, Kind, Op, Scope, Stage, verify
from rpeg.transforms.base import Changes, Transform
from rpeg.transforms.merging import distinct, without

BEHAVIOUR = "behaviour_logprobs"


@dataclass(frozen=True)
class Bypass(Transform):
    """Removes `stage`, the actor's log-probabilities of its own responses; the generator gives its own in their place,
    or the selector passes them on.

    They are of another engine, in another precision, and where weights may be older of another version: ratios and
    clipping are then about the behaviour policy, and what is learned changes. (verl calls it bypass mode of its
    rollout correction.)
    """

    name: ClassVar[str] = "bypass"
    changes: ClassVar[Changes] = Changes.MODEL
    permission: ClassVar[str] = "behaviour_logprobs"

    stage: str

    @property
    def words(self) -> str:
        return f"{self.stage} is left out; the generator's own log-probabilities stand in"

    @property
    def learning(self) -> str:
        return "ratios and clipping are about the policy that sampled, as its engine computed it"

    def apply(self, graph: Graph) -> Graph:
        stage = graph.stage(self.stage)
        generator = _generator_of(graph, stage)
        if generator is None:
            raise GraphError(
                f"{self}: {self.stage} is not the log-probabilities of a model under which a generator gives {BEHAVIOUR}"
            )
        stand_in = Op("behaviour", Scope.TOKEN, (BEHAVIOUR,), tuple(sorted(stage.gives)))
        last = generator.calls[-1]
        grown = replace(generator, calls=(*generator.calls[:-1], Call(last.model, (*last.ops, stand_in))))
        rest = without(graph, stage)
        stages = tuple(grown if s == generator else s for s in rest.stages)
        moved = (replace(e, src=generator.name) for e in graph.out_of(stage.name))
        return verify(replace(rest, stages=stages, edges=distinct((*rest.edges, *moved))))

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Every stage that gives log-probabilities of the model that generated."""
        yield from (cls(s.name) for s in graph.stages if _generator_of(graph, s) is not None)


def _generator_of(graph: Graph, stage: Stage) -> Stage | None:
    """The generator whose log-probabilities could stand in for all that a stage gives."""
    logprobs = bool(stage.gives) and all(datum.endswith("logprobs") for datum in stage.gives)
    if stage.kind is not Kind.INFERENCE or not logprobs or not graph.out_of(stage.name):
        return None
    for other in graph.stages:
        makers = graph.generators_of(other.name)
        models = {model for name in makers for model in graph.stage(name).models}
        begins = other.kind is Kind.GENERATE or other == graph.selector
        if begins and BEHAVIOUR in other.gives and models == set(stage.models):
            return other
    return None
