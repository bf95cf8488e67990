"""What the driver tells a worker and what the worker answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpeg.job import Job
from rpeg.plan import Item, Plan


@dataclass(frozen=True)
class Station:
    """One worker's place in a run.

    lane: the device or host slot that it is. rank, world: among the device workers, None for a host worker.
    device: a torch device. core: the processor core to stay on, None to roam. address: of its node, for the others.
    """

    name: str
    lane: str
    rank: int | None
    lanes_by_rank: tuple[str, ...]
    device: str
    core: int | None
    address: str
    plan: Plan
    job: Job
    trace: Path
    first_step: int
    checkpoint: Path | None

    @property
    def is_host(self) -> bool:
        return self.rank is None


@dataclass(frozen=True)
class Work:
    """An item to run.

    seq: of the command in the driver's log. parts: of a generator, (base part, samples), in order.
    ids: the samples to work on. data: the names of the data that come with it, one for each batch.
    versions: of each trainable model that it reads. save: where a trainer writes its checkpoint afterwards.
    """

    item: Item
    seq: int
    parts: tuple[tuple[int, int], ...] = ()
    ids: tuple[int, ...] = ()
    data: tuple[str, ...] = ()
    versions: tuple[tuple[str, int], ...] = ()
    save: Path | None = None


@dataclass(frozen=True)
class Part:
    """A base part that has left a generator. batch: a reference to its `Samples`."""

    part: int
    ids: tuple[int, ...]
    lengths: tuple[int, ...]
    batch: Any


@dataclass(frozen=True)
class Done:
    """An item's end on one lane.

    batch: a reference to the `Samples` that it made, if any. published: a reference to each model's new weights.
    metrics: numbers to show; summed or averaged by the driver as their names say (see `record`).
    """

    batch: Any = None
    published: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
