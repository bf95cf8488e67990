"""Events that go into the scheduler and commands that come out."""

from __future__ import annotations

from dataclasses import dataclass, field

from rpeg.plan import Item


@dataclass(frozen=True, slots=True)
class Produced:
    """A base part has left a generator, or a selector has accepted it: these samples, with their response lengths in
    tokens."""

    item: Item
    part: int
    ids: tuple[int, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A selector turns these samples down, whole groups, for the reason `why`. They are never trained."""

    item: Item
    ids: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A selector has accepted these samples beyond the quota; the next step begins with them."""

    item: Item
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """An item has ended on all its lanes."""

    item: Item


@dataclass(frozen=True, slots=True)
class Failed:
    """An item cannot be completed."""

    item: Item
    error: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a stage's item now on these lanes.

    parts: the base parts that it covers. ids: its samples, for items that take any.
    versions: of each trainable model that it reads. wanted: of a selector, the samples that its step still lacks.
    """

    item: Item
    lanes: tuple[str, ...]
    parts: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    versions: tuple[tuple[str, int], ...] = ()
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class SyncWeights:
    """Load this version of a model into the copy that these lanes hold."""

    item: Item
    lanes: tuple[str, ...]
    model: str
    version: int


@dataclass(frozen=True, slots=True)
class Reload:
    """Bring what rests in host memory of a stage to its devices: its `what` (model or optimizer)."""

    item: Item
    lanes: tuple[str, ...]
    stage: str
    what: str


@dataclass(frozen=True, slots=True)
class Offload:
    """Take it from the devices again: nothing of it is left there when the item has finished."""

    item: Item
    lanes: tuple[str, ...]
    stage: str
    what: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give up: an item failed, nothing further is launched; what runs is let end or ended."""

    running: tuple[Item, ...] = field(default=())
    reason: str = ""


Event = Produced | Rejected | Kept | Finished | Failed
Command = Launch | SyncWeights | Reload | Offload | Cancel
Work = Launch | SyncWeights | Reload | Offload
"""Commands that begin an item."""
