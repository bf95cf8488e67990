"""What rests in host memory between its runs, and the items that bring it to the devices and away again.

A stage's reload comes before its first item of a step, its offload after its last, and the next step's reload after
that. Both hold the lanes of the stage's devices, so that a lane's order says what is there at each of its turns:
co-residency never depends on timing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Literal

from rpeg.ir import Graph, Kind, Stage
from rpeg.plan.assignment import Assignment
from rpeg.plan.item import ItemKind, Slot

if TYPE_CHECKING:
    from rpeg.plan.lowered import Copy

What = Literal["model", "optimizer"]


@dataclass(frozen=True, slots=True)
class Rest:
    """A stage's state that is on its devices only while it runs.

    what: all of it (`model`: weights, and an engine's cache or a trainer's optimizer with them) or the `optimizer`
    alone. stages: those that use it there. copies: names of the copies of weights that lie in it.
    """

    stage: str
    what: What
    stages: tuple[str, ...]
    copies: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of its items: ``train_actor:optimizer``."""
        return f"{self.stage}:{self.what}"

    def uses(self, slot: Slot) -> bool:
        """Whether an item needs it on the devices."""
        if slot.kind is ItemKind.TRANSFER:
            return slot.name in self.copies
        return slot.kind is ItemKind.RUN and slot.name in self.stages


def rests(graph: Graph, by_stage: Mapping[str, Assignment], copies: Collection[Copy]) -> Iterator[Rest]:
    """All of a plan. Who uses another's memory finds it at rest where that one's assignment says so.

    A generator's cache is its own, whoever's its weights are.
    """
    for stage in graph.stages:
        offload = by_stage[stage.name].offload
        if stage.kind is Kind.TRAIN:
            if offload != "none":
                yield Rest(stage.name, "model" if offload == "all" else "optimizer", (stage.name,))
            continue
        own = tuple(copy for copy in copies if copy.stages[0] == stage.name)
        frozen = any(graph.trainer(model) is None for model in stage.models)
        borrowed = any(stage.name in copy.stages[1:] for copy in copies)
        holds = own or frozen or (stage.kind is Kind.GENERATE and not borrowed)
        lent = any(by_stage[name].offload == "all" for name in _lenders(graph, stage, copies))
        if lent or (offload == "all" and holds):
            stages = dict.fromkeys((stage.name, *(name for copy in own for name in copy.stages)))
            yield Rest(stage.name, "model", tuple(stages), tuple(copy.name for copy in own))


def owners(graph: Graph, stage: Stage, copies: Collection[Copy]) -> tuple[str, ...]:
    """The other stages in whose memory a stage finds weights: trainers, and who else holds its copy."""
    held = (copy.stages[0] for copy in copies if stage.name in copy.stages[1:])
    return tuple(dict.fromkeys((*_lenders(graph, stage, copies), *held)))


def _lenders(graph: Graph, stage: Stage, copies: Collection[Copy]) -> tuple[str, ...]:
    copied = {copy.model for copy in copies if stage.name in copy.stages}
    trainers = (graph.trainer(model) for model in stage.models if model not in copied)
    return tuple(dict.fromkeys(t.name for t in trainers if t is not None and t.name != stage.name))


def rest_every(graph: Graph, rest: Rest) -> int:
    """Every how many steps it is brought."""
    return gcd(*(graph.stage(name).every for name in rest.stages))


def rest_slots(rest: Rest, replica: int) -> tuple[Slot, Slot]:
    """(its reload, its offload) for one replica of its stage."""
    reload, offload = (Slot(kind, rest.name, 0, replica) for kind in (ItemKind.RELOAD, ItemKind.OFFLOAD))
    return reload, offload
