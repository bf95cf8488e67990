"""What the driver did and heard, in the order in which it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rpeg.plan import Item
from rpeg.trace.fields import item_from_json, item_to_json, versions_from_json


class What(StrEnum):
    LAUNCH = "launch"  # a command: run a stage's item
    SYNC = "sync"  # a command: load a version into a copy
    CANCEL = "cancel"
    PRODUCED = "produced"  # an event: a part left a generator
    FINISHED = "finished"
    FAILED = "failed"

    @property
    def is_command(self) -> bool:
        return self in (What.LAUNCH, What.SYNC, What.CANCEL)


@dataclass(frozen=True, slots=True)
class Entry:
    """One command or event. seq: its number, ascending without gaps. seconds: the driver's own monotonic clock.

    part, parts: base parts. ids: samples. versions: what a launched item is to read, or a sync to load.
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
        }
        value.update({key: content for key, content in optional.items() if content})
        return value if self.part is None else {**value, "part": self.part}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Entry:
        return Entry(
            int(value["seq"]),
            float(value["seconds"]),
            What(value["what"]),
            item_from_json(value["item"]),
            tuple(value.get("lanes", ())),
            value.get("part"),
            tuple(value.get("parts", ())),
            tuple(value.get("ids", ())),
            versions_from_json(value.get("versions", {})),
            value.get("error", ""),
        )
