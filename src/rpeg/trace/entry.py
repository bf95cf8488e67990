"""What the driver did and heard, in the order in which it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rpeg.errors import InputError
from rpeg.fields import Fields, shown
from rpeg.plan import Item
from rpeg.trace.fields import item_from_json, item_to_json

OVER_QUOTA = "over the quota"
"""Why samples are rejected that would have been accepted, had there been room."""


class What(StrEnum):
    LAUNCH = "launch"  # a command: run a stage's item
    SYNC = "sync"  # a command: load a version into a copy
    RELOAD = "reload"  # a command: bring to the devices what rests in host memory
    OFFLOAD = "offload"  # a command: take it away again
    CANCEL = "cancel"
    PRODUCED = "produced"  # an event: a part left a generator, or was accepted by a selector
    REJECTED = "rejected"  # an event: a selector turned samples down
    KEPT = "kept"  # an event: accepted beyond the quota, for the next step
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_command(self) -> bool:
        return self.begins or self is What.CANCEL

    @property
    def begins(self) -> bool:
        """Whether it is the command that begins an item."""
        return self in (What.LAUNCH, What.SYNC, What.RELOAD, What.OFFLOAD)


@dataclass(frozen=True, slots=True)
class Entry:
    """One command or event. seq: its number, ascending without gaps. seconds: the driver's own monotonic clock.

    part, parts: base parts. ids: samples. versions: what a launched item is to read, or a sync to load.
    wanted: samples that a selector's step still lacks. why: samples were rejected.
    """

    seq: int
    seconds: float
    what: What
    item: Item
    lanes: tuple[str, ...] = ()
    part: int | None = None
    parts: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    wanted: int = 0
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "seq": self.seq,
            "seconds": self.seconds,
            "what": str(self.what),
            "item": item_to_json(self.item),
        }
        optional = {
            "lanes": list(self.lanes),
            "parts": list(self.parts),
            "ids": list(self.ids),
            "versions": dict(self.versions),
            "error": self.error,
            "wanted": self.wanted,
            "why": self.why,
        }
        value.update({key: content for key, content in optional.items() if content})
        return value if self.part is None else {**value, "part": self.part}

    @staticmethod
    def from_json(value: object) -> Entry:
        """The entry that `to_json` wrote. Raises InputError for a wrong, missing or unknown field."""
        fields = Fields("log entry", value)
        what = What(fields.one_of("what", What))
        for key in _OWN_FIELDS & fields.data.keys() - _FIELDS_OF[what]:
            raise InputError(f"log entry has {key} = {shown(fields.data[key])}, which a '{what}' has not")
        entry = Entry(
            fields.whole("seq", least=0),
            fields.finite("seconds"),
            what,
            item_from_json(fields.get("item")),
            fields.texts("lanes", ()),
            fields.whole("part", least=0) if "part" in fields.data else None,
            fields.wholes("parts", ()),
            fields.wholes("ids", ()),
            fields.named_wholes("versions"),
            fields.text("error") if "error" in fields.data else "",
            fields.whole("wanted", 0, least=0),
            fields.text("why") if "why" in fields.data else "",
        )
        fields.finish()
        return entry


_FIELDS_OF = {
    What.LAUNCH: {"lanes", "parts", "ids", "versions", "wanted"},
    What.SYNC: {"lanes", "versions"},
    What.RELOAD: {"lanes"},
    What.OFFLOAD: {"lanes"},
    What.CANCEL: {"lanes"},
    What.PRODUCED: {"part", "ids"},
    What.REJECTED: {"ids", "why"},
    What.KEPT: {"ids"},
    What.FINISHED: set(),
    What.FAILED: {"error"},
}
"""What an entry may tell beside its number, time and item; anything else was not written by a driver."""

_OWN_FIELDS = set().union(*_FIELDS_OF.values())
