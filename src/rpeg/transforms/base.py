"""What a structural transform is: a frozen value that prints, parses, applies, and lists where it could apply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar, Self

from rpeg.errors import GraphError, nearest
from rpeg.ir import Graph
from rpeg.text import call_text


class Changes(StrEnum):
    """What a transform alters: only the schedule, the staleness of what is learned from, or the model itself.

    The last two change what is learned; they need the user's permission.
    """

    SCHEDULE = "schedule"
    STALENESS = "staleness"
    MODEL = "model"


@dataclass(frozen=True)
class Transform(ABC):
    """A change of a graph's structure. Subclasses are frozen dataclasses of int and str fields, one a file.

    permission: the key of a job's `allow` that permits it; "" for those that change only the schedule.
    """

    name: ClassVar[str]
    changes: ClassVar[Changes]
    permission: ClassVar[str] = ""

    @property
    @abstractmethod
    def words(self) -> str:
        """What it does, in half a line."""

    @property
    def key(self) -> str:
        """The key of a job's `allow` that permits this one."""
        return self.permission

    @property
    def learning(self) -> str:
        """What it does to learning, in half a line."""
        return "nothing: the same samples and updates"

    @abstractmethod
    def apply(self, graph: Graph) -> Graph:
        """The changed graph, which passes `ir.verify`. Raises GraphError where it does not apply."""

    @classmethod
    @abstractmethod
    def candidates(cls, graph: Graph) -> Iterator[Self]:
        """Instances that apply to a graph."""

    def applies(self, graph: Graph) -> bool:
        """Whether `apply` gives a graph."""
        try:
            self.apply(graph)
        except GraphError:
            return False
        return True

    def __str__(self) -> str:
        """As text that `rpeg.transforms.parse` reads back."""
        return call_text(self.name, {f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def from_arguments(cls, arguments: dict[str, str]) -> Self:
        """From parsed text. Raises GraphError for an unknown argument or one that is not of its type."""
        known = {f.name: f.type for f in fields(cls)}
        values: dict[str, int | str] = {}
        for key, value in arguments.items():
            if key not in known:
                raise GraphError(f"transform {cls.name} has no argument '{key}'. {nearest(key, known)}")
            try:
                values[key] = int(value) if known[key] in ("int", int) else value
            except ValueError:
                raise GraphError(
                    f"transform {cls.name}: {key} is '{value}', which is no whole number"
                ) from None
        try:
            return cls(**values)
        except TypeError:
            missing = ", ".join(sorted(set(known) - set(values)))
            raise GraphError(f"transform {cls.name} needs the arguments {missing}") from None
