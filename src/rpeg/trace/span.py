"""What a worker did for one item on one lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rpeg.fields import Fields
from rpeg.plan import Item
from rpeg.trace.fields import item_from_json, item_to_json


@dataclass(frozen=True, slots=True)
class Span:
    """An item's time on one lane. A gang has a span on each of its lanes.

    worker: the process. lane: the device or host slot that it is. launch: the `seq` of the command that asked for it.
    start_seconds, end_seconds: the worker's own monotonic clock; clocks of two workers are not comparable.
    reads, makes: versions of trainable models, and `digests` of the bytes of each, under `model@version`.
    ids: samples that it generated, assessed or trained on this lane, each as often as it was worked on in an epoch.
    memory_bytes: the most that the process held by the item's end.
    """

    worker: str
    lane: str
    item: Item
    launch: int
    start_seconds: float
    end_seconds: float
    reads: Mapping[str, int] = field(default_factory=dict)
    makes: Mapping[str, int] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    ids: tuple[int, ...] = ()
    tokens: int = 0
    memory_bytes: int = 0

    @property
    def seconds(self) -> float:
        return self.end_seconds - self.start_seconds

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "worker": self.worker,
            "lane": self.lane,
            "item": item_to_json(self.item),
            "launch": self.launch,
            "start_seconds": self.start_seconds,
            "end_seconds": self.end_seconds,
        }
        optional = {
            "reads": dict(self.reads),
            "makes": dict(self.makes),
            "digests": dict(self.digests),
            "ids": list(self.ids),
            "tokens": self.tokens,
            "memory_bytes": self.memory_bytes,
        }
        value.update({key: content for key, content in optional.items() if content})
        return value

    @staticmethod
    def from_json(value: object) -> Span:
        """The span that `to_json` wrote. Raises InputError for a wrong, missing or unknown field."""
        fields = Fields("span", value)
        span = Span(
            fields.text("worker"),
            fields.text("lane"),
            item_from_json(fields.get("item")),
            fields.whole("launch"),
            fields.finite("start_seconds"),
            fields.finite("end_seconds"),
            fields.named_wholes("reads"),
            fields.named_wholes("makes"),
            fields.named_texts("digests"),
            fields.wholes("ids", ()),
            fields.whole("tokens", 0, least=0),
            fields.whole("memory_bytes", 0, least=0),
        )
        fields.finish()
        return span
