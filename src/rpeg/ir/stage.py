"""What happens in a step: stages, their calls and the operations in them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Kind(StrEnum):
    """What a stage does, and so which backend runs it."""

    GENERATE = "generate"
    INFERENCE = "inference"
    TRAIN = "train"
    UPDATE = "update"
    HOST = "host"


class Scope(IntEnum):
    """What must be complete before an operation may run; larger scopes contain smaller ones."""

    TOKEN = 0
    SAMPLE = 1
    GROUP = 2
    MINIBATCH = 3
    BATCH = 4


@dataclass(frozen=True, slots=True)
class Op:
    """An operation on samples: the data it needs and the data it gives."""

    name: str
    scope: Scope
    needs: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """Operations on one forward of a model, or on the host when `model` is None."""

    model: str | None
    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Stage:
    """A node of the graph: structure only, no batch size, placement or cost.

    every: the stage fires at the steps that `every` divides; its state carries over in between.
    parts: it works through its batch in so many parts of whole groups, by the order of prompts; whoever takes its data
    and is split too may start on a part when its samples are there.
    migrates: of a generator on several replicas, so many responses, the last of each, are finished on the first of them.
    """

    name: str
    kind: Kind
    calls: tuple[Call, ...]
    every: int = 1
    parts: int = 1
    migrates: int = 0

    @property
    def models(self) -> tuple[str, ...]:
        """The models that it calls, each once, in order."""
        return tuple(dict.fromkeys(call.model for call in self.calls if call.model is not None))

    @property
    def ops(self) -> tuple[Op, ...]:
        return tuple(op for call in self.calls for op in call.ops)

    @property
    def scope(self) -> Scope:
        """The largest scope of its operations: what it must see whole."""
        return max((op.scope for op in self.ops), default=Scope.TOKEN)

    @property
    def gives(self) -> frozenset[str]:
        return frozenset(datum for op in self.ops for datum in op.gives)

    @property
    def needs(self) -> frozenset[str]:
        """Data that must come over edges: what its operations need and none before them gave."""
        missing: set[str] = set()
        given: set[str] = set()
        for op in self.ops:
            missing.update(set(op.needs) - given)
            given.update(op.gives)
        return frozenset(missing)

    def fires(self, step: int) -> bool:
        return step % self.every == 0
