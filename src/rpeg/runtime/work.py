"""What the driver tells a worker and what the worker answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rpeg.job import Job
from rpeg.plan import Item, Plan


@dataclass(frozen=True)
class Station:
    """One worker's place in a run.

    lane: the device or host slot that it is. rank: among the device workers, None for a host worker.
    models: where to load each from. device: a torch device. core: the processor core to stay on, None to roam.
    address: of its node, for the others. heartbeat_seconds: within which it gives signs of life; None gives none.
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
    models: Mapping[str, str]
    trace: Path
    first_step: int
    checkpoint: Path | None
    heartbeat_seconds: float | None = None

    @property
    def is_host(self) -> bool:
        return self.rank is None


@dataclass(frozen=True)
class Save:
    """What a trainer writes of a version, beside its further work.

    state: the directory of the checkpoint that it is the state of, if any; waits: only this time it goes on when all
    is written. weights: directories of later checkpoints, which exact edges will read it from.
    """

    state: Path | None = None
    waits: bool = False
    weights: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Work:
    """An item to run.

    seq: of the command in the driver's log. parts: that it is to make, (base part, samples), in order.
    ids: the samples to work on. data: the names of the data that come with it, one for each batch.
    versions: of each trainable model that it reads. save: of a trainer, what it writes of the version that it makes.
    wanted: of a selector, the samples that its step lacks.
    contents: how many batches and weights its answers hold at most.
    lanes: of those that the worker serves the ones that run it.
    """

    item: Item
    seq: int
    parts: tuple[tuple[int, int], ...] = ()
    ids: tuple[int, ...] = ()
    data: tuple[str, ...] = ()
    versions: tuple[tuple[str, int], ...] = ()
    save: Save | None = None
    wanted: int = 0
    contents: int = 0
    lanes: tuple[str, ...] = ()

    @property
    def streams(self) -> bool:
        """Whether something is to be known of it before its end."""
        return len(self.parts) > 1


@dataclass(frozen=True)
class Part:
    """A base part that has left a generator. batch: its `Samples`; a reference to them once it reaches the driver."""

    part: int
    ids: tuple[int, ...]
    lengths: tuple[int, ...]
    batch: Any


@dataclass(frozen=True)
class Verdict:
    """Samples that a selector turns down, for the reason `why`, or has kept for the next step."""

    ids: tuple[int, ...]
    why: str = ""
    kept: bool = False


@dataclass(frozen=True)
class Done:
    """An item's end on one lane.

    batch: the `Samples` that it made, if any. published: each model's new weights. Both are references once they reach
    the driver. metrics: numbers to show; summed or averaged by the driver as their names say (see `record`).
    warnings: sentences to show once. marks: files that will be there when what is being saved is on the disk.
    """

    batch: Any = None
    published: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    marks: tuple[Path, ...] = ()


Answer = Part | Verdict | Done


def pack(answer: Answer) -> Iterator[Any]:
    """An answer without its contents and the number of these, then the contents one by one.

    Sent so, each becomes an object of its own that belongs to the driver, which passes it on unseen.
    """
    if isinstance(answer, Part):
        yield replace(answer, batch=None), 1
        yield answer.batch
        return
    if isinstance(answer, Verdict):
        yield answer, 0
        return
    batches = [] if answer.batch is None else [answer.batch]
    contents = [*batches, *answer.published.values()]
    header = replace(answer, batch=len(batches) or None, published=dict.fromkeys(answer.published))
    yield header, len(contents)
    # Not `yield from`: the transport sends values into the generator, which a list refuses.
    for content in contents:  # noqa: UP028
        yield content


def unpack(answer: Answer, contents: Sequence[Any]) -> Answer:
    """The answer with its contents, or references to them, put back."""
    if isinstance(answer, Part):
        return replace(answer, batch=contents[0])
    if isinstance(answer, Verdict):
        return answer
    batches = answer.batch or 0
    published = dict(zip(answer.published, contents[batches:], strict=True))
    return replace(answer, batch=contents[0] if batches else None, published=published)


def bundle(answers: Iterable[Answer], contents: int) -> Any:
    """All answers of an item as one: their headers, then as many contents as the driver expects, None where fewer are.

    Just the headers where none are expected.
    """
    headers, found = [], []
    for answer in answers:
        header, *inside = pack(answer)
        headers.append(header)
        found += inside
    return (headers, *found, *[None] * (contents - len(found))) if contents else headers


def unbundle(headers: Iterable[tuple[Answer, int]], contents: Sequence[Any]) -> Iterator[Answer]:
    """The answers of a bundle."""
    rest = list(contents)
    for header, count in headers:
        yield unpack(header, rest[:count])
        rest = rest[count:]
