"""Generation ahead: slots that fall free begin on the next step's prompts, which go on there under newer weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from rpeg.errors import GraphError, nearest
from rpeg.ir import Freshness, Graph, OnNewWeights, verify
from rpeg.transforms.base import Changes, Transform

INTERRUPTING = tuple(how for how in OnNewWeights if how is not OnNewWeights.DRAIN)


@dataclass(frozen=True)
class GenerationAhead(Transform):
    """While a step's last responses are generated, `stage` begins those of the next step as slots fall free. When the
    step is done they are interrupted, and go on as the next step's with the weights that it is given.

    how: what an interrupted response goes on with, new weights having come: `reprefill` computes the keys and values of
    all its tokens anew, `keep_kv` goes on with the old ones. Its tokens are of several versions, none of them older than
    its weights edge allows the step that they are trained at; that edge is of the newest weights from then on.
    """

    name: ClassVar[str] = "ahead"
    changes: ClassVar[Changes] = Changes.STALENESS
    permission: ClassVar[str] = "staleness"

    stage: str = "generate"
    how: str = "reprefill"

    def __post_init__(self) -> None:
        if self.how not in INTERRUPTING:
            raise GraphError(f"{self}: '{self.how}' is no way to go on. {nearest(self.how, INTERRUPTING)}")

    @property
    def key(self) -> str:
        return "keep_kv" if self.how == OnNewWeights.KEEP_KV else self.permission

    @property
    def words(self) -> str:
        return f"{self.stage} begins on the next step where slots fall free"

    @property
    def learning(self) -> str:
        kept = ", later ones after keys and values of the older weights" if self.key == "keep_kv" else ""
        return f"responses of {self.stage} may have tokens of several versions{kept}"

    def apply(self, graph: Graph) -> Graph:
        how = OnNewWeights(self.how)
        changed = {
            edge: replace(edge, freshness=Freshness.LATEST, on_new_weights=how)
            for edge in graph.weights_into(graph.stage(self.stage).name)
        }
        if all(edge == other for edge, other in changed.items()):
            raise GraphError(f"{self}: {self.stage} has no weights that change, or does so already")
        return verify(graph.with_edges(changed.get(e, e) for e in graph.edges))

    @classmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """None: a plan has it where a job asks for it, and a prediction says what it brings."""
        yield from ()
