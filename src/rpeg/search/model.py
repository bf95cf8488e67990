"""What the search asks of a cost model: the options of a stage on a block of devices, and what they take."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rpeg.ir import Graph, Stage
from rpeg.plan import BasePart, Parallelism
from rpeg.sim.costs import Batch

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """A stage of some structure as costs see it: stages of other structures that take the same share its rows.

    batches: by draw, of each of the stage's items. bases: of a generator, the base parts of each item.
    trainers: the profiles of the trainers of the models that it uses.
    """

    graph: Graph
    stage: Stage
    batches: tuple[tuple[Batch, ...], ...]
    bases: tuple[tuple[BasePart, ...], ...] = ()
    trainers: tuple[Profile, ...] = ()

    @property
    def draws(self) -> int:
        return len(self.batches)

    @property
    def items(self) -> int:
        return len(self.batches[0])

    @cached_property
    def key(self) -> object:
        """All that its costs rest on."""
        models = tuple(self.graph.model(name) for name in self.stage.models)
        data = tuple(edge.data for edge in self.graph.data_into(self.stage.name))
        digests = tuple(batch.digest for drawn in self.batches for batch in drawn)
        trainers = tuple(profile.key for profile in self.trainers)
        return self.stage.kind, self.stage.calls, models, data, digests, self.bases, trainers


@dataclass(frozen=True)
class Use:
    """Of one model that a stage calls: seconds (items, draws), and bytes as in `sim.hardware.alone.Held`."""

    seconds: Floats
    peak: float = 0.0
    peak_apart: float = 0.0
    weights: float = 0.0
    more: float = 0.0
    process: float = 0.0
    moves: tuple[float, float, float] = (0.0, 0.0, 0.0)
    host: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)

    @property
    def mean_seconds(self) -> float:
        """Of all items, over the draws."""
        return float(self.seconds.mean(axis=-1).sum()) if self.seconds.size else 0.0


@dataclass(frozen=True)
class Cached:
    """Of a generator, in bytes of each device: without a cache at the peak and while generating, of the longest sequence;
    rows: most sequences at once. wake: seconds. process: bytes."""

    peak: float
    generating: float
    sequence: float
    rows: float
    wake: float = 0.0
    process: float = 0.0


@dataclass(frozen=True)
class Option:
    """A way of running a stage on a block. uses: by model, with weights of its own or copies, and with the trainer's."""

    parallelism: Parallelism
    microbatch: int
    recompute: str
    uses: tuple[tuple[Use | None, Use | None], ...]
    engine: Cached | None = None


@dataclass(frozen=True)
class Kinds:
    """The devices of one kind. ids: their numbers. width: of a node. share: the part of it that engines may fill."""

    name: str
    ids: tuple[int, ...]
    width: int
    capacity_bytes: float
    share: float
    host_bytes: float


@dataclass(frozen=True)
class Placed:
    """A stage under an option on so many devices of a kind."""

    profile: Profile
    option: Option
    kind: int
    devices: int

    @property
    def holds(self) -> Hashable:
        """What weights it has and where: transfers from or to placed stages that hold the same take as long."""
        stage, graph = self.profile.stage, self.profile.graph
        models = tuple(graph.model(name) for name in stage.models)
        return stage.kind, models, self.option.parallelism, self.kind, self.devices


class CostModel(Protocol):
    """Rows for the search's tables. Pure: the same question has the same answer."""

    @property
    def kinds(self) -> tuple[Kinds, ...]:
        """The devices that there are."""

    @property
    def dispatch_seconds(self) -> float:
        """Of every item."""

    def options(self, profile: Profile, kind: int, devices: int, align: int) -> Sequence[Option]:
        """The fastest first; those kept that something speaks for. Host stages have one, on 0 devices.

        align: most consecutive devices of the block that surely lie in one node.
        """

    def generation(self, placed: Placed, cache_bytes: float) -> tuple[Floats, Floats]:
        """Seconds (items, draws), and of each base part (bases, draws), with so large a cache on each device."""

    def transfer(self, model: str, source: Placed, target: Placed, relation: int) -> float:
        """Seconds. relation: 0 blocks apart, 1 they begin at the same device, 2 they share devices."""
