"""Actor–critic sharing: one backbone with an lm and a value head instead of two models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError
from rpeg.ir import WEIGHTS, Call, Edge, Graph, Kind, Model, Stage, verify
from rpeg.transforms.base import Changes, Transform
from rpeg.transforms.merging import distinct, join_calls, merge_stages


@dataclass(frozen=True)
class Sharing(Transform):
    """Gives `actor` the heads of `critic`, which goes: whoever called the critic calls the actor.

    Their updates merge into one of a common loss and so do their version counters; each consumer of weights keeps its
    delay. Changes the model: the heads pull at one backbone, and the critic's own start is gone.
    """

    name: ClassVar[str] = "share"
    changes: ClassVar[Changes] = Changes.MODEL
    permission: ClassVar[str] = "actor_critic_sharing"

    actor: str = "actor"
    critic: str = "critic"

    @property
    def words(self) -> str:
        return f"{self.actor} and {self.critic} are one model with two heads"

    @property
    def learning(self) -> str:
        return "both losses pull at one backbone, and the critic's own start is gone"

    def apply(self, graph: Graph) -> Graph:
        actor, critic = graph.model(self.actor), graph.model(self.critic)
        trainers = [graph.trainer(model.name) for model in (actor, critic)]
        if actor == critic or not _can_share(graph, actor, critic):
            raise GraphError(
                f"{self}: a trained model that generates and one of other heads that does not can share a backbone; "
                f"{actor.name} has {','.join(actor.heads)} and {critic.name} {','.join(critic.heads)}"
            )
        try:
            first, second = (trainer.name for trainer in trainers if trainer is not None)
            merged = graph if first == second else merge_stages(graph, first, second)
            return verify(self._with_one_model(merged, replace(actor, heads=(*actor.heads, *critic.heads))))
        except GraphError as error:
            raise GraphError(f"{self}: {error}") from None

    def _with_one_model(self, graph: Graph, shared: Model) -> Graph:
        models = tuple(shared if m.name == self.actor else m for m in graph.models if m.name != self.critic)
        stages = tuple(map(self._renamed, graph.stages))
        return replace(graph, models=models, stages=stages, edges=distinct(map(self._carried, graph.edges)))

    def _renamed(self, stage: Stage) -> Stage:
        """Calls the actor in the critic's place; in one forward where it calls both."""
        if self.critic not in stage.models:
            return stage
        calls = (Call(self.actor, c.ops) if c.model == self.critic else c for c in stage.calls)
        return replace(stage, calls=join_calls(calls))

    def _carried(self, edge: Edge) -> Edge:
        return replace(edge, data=f"{WEIGHTS}{self.actor}") if edge.model == self.critic else edge

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Every trained model that generates with every trained one of other heads that does not."""
        pairs = ((a, c) for a in graph.models for c in graph.models if a != c and _can_share(graph, a, c))
        yield from (t for t in (cls(a.name, c.name) for a, c in pairs) if t.applies(graph))


def _can_share(graph: Graph, actor: Model, critic: Model) -> bool:
    generated = {model for s in graph.stages if s.kind is Kind.GENERATE for model in s.models}
    trained = graph.trainer(actor.name) is not None and graph.trainer(critic.name) is not None
    apart = not set(actor.heads) & set(critic.heads)
    return trained and apart and actor.name in generated and critic.name not in generated
