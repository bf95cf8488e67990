"""The units that a scheduler launches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ItemKind(StrEnum):
    RUN = "run"
    TRANSFER = "transfer"
    OFFLOAD = "offload"
    RELOAD = "reload"


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """An item of every step: what the step's number turns into an `Item`.

    name: the stage for RUN, the edge (`src->dst:data`) otherwise.
    part: which part of the batch. replica: which data-parallel replica runs it.
    """

    kind: ItemKind
    name: str
    part: int = 0
    replica: int = 0

    def at(self, step: int) -> Item:
        return Item(self.kind, self.name, step, self.part, self.replica)

    def __str__(self) -> str:
        prefix = "" if self.kind is ItemKind.RUN else f"{self.kind} "
        return f"{prefix}{self.name}[part {self.part}, replica {self.replica}]"


@dataclass(frozen=True, slots=True, order=True)
class Item:
    """One run of a stage's part, or one movement of an edge's data, at one step."""

    kind: ItemKind
    name: str
    step: int
    part: int = 0
    replica: int = 0

    @property
    def slot(self) -> Slot:
        return Slot(self.kind, self.name, self.part, self.replica)

    def __str__(self) -> str:
        prefix = "" if self.kind is ItemKind.RUN else f"{self.kind} "
        return f"{prefix}{self.name}[step {self.step}, part {self.part}, replica {self.replica}]"
