"""What each lane has been doing lately, from the driver's log as it is written."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from rpeg.plan import Item, ItemKind
from rpeg.trace import Entry, What


@dataclass(frozen=True)
class Busy:
    """An item's time on a lane, by the driver's clock; end_seconds is None while it runs."""

    item: Item
    start_seconds: float
    end_seconds: float | None = None


@dataclass
class Activity:
    """Recent items of each lane, and what is generated and not trained yet."""

    keep_seconds: float = 120.0
    lanes: dict[str, deque[Busy]] = field(default_factory=dict)
    queued_samples: int = 0
    now: float = 0.0

    def on_entry(self, entry: Entry) -> None:
        self.now = max(self.now, entry.seconds)
        if entry.what.begins:
            for lane in entry.lanes:
                self.lanes.setdefault(lane, deque()).append(Busy(entry.item, entry.seconds))
        elif entry.what in (What.FINISHED, What.FAILED):
            self._close(entry)
        elif entry.what is What.PRODUCED:
            self.queued_samples += len(entry.ids)

    def current(self, lane: str) -> Item | None:
        """What a lane runs now."""
        recent = self.lanes.get(lane)
        return recent[-1].item if recent and recent[-1].end_seconds is None else None

    def strip(self, lane: str, window_seconds: float, cells: int) -> list[Item | None]:
        """The item that filled most of each of `cells` equal pieces of the last `window_seconds`."""
        start = self.now - window_seconds
        width = window_seconds / cells
        out: list[Item | None] = []
        recent = self.lanes.get(lane, ())
        for cell in range(cells):
            a, b = start + cell * width, start + (cell + 1) * width
            best: tuple[float, Item | None] = (width / 2, None)
            for busy in recent:
                overlap = min(b, busy.end_seconds if busy.end_seconds is not None else b) - max(
                    a, busy.start_seconds
                )
                if overlap >= best[0]:
                    best = (overlap, busy.item)
            out.append(best[1])
        return out

    def busy_share(self, lane: str, window_seconds: float) -> float:
        """Share of the last `window_seconds` in which the lane held an item."""
        start = self.now - window_seconds
        total = sum(
            max(0.0, (b.end_seconds if b.end_seconds is not None else self.now) - max(start, b.start_seconds))
            for b in self.lanes.get(lane, ())
        )
        return min(1.0, total / window_seconds) if window_seconds > 0 else 0.0

    def _close(self, entry: Entry) -> None:
        for recent in self.lanes.values():
            for i in range(len(recent) - 1, -1, -1):
                if recent[i].item == entry.item and recent[i].end_seconds is None:
                    recent[i] = Busy(entry.item, recent[i].start_seconds, entry.seconds)
                    break
            while recent and (recent[0].end_seconds or self.now) < self.now - self.keep_seconds:
                recent.popleft()

    def on_step_trained(self, samples: int) -> None:
        self.queued_samples = max(0, self.queued_samples - samples)


def short_name(item: Item) -> str:
    """``train_actor``, ``weights → generate``."""
    if item.kind is ItemKind.RUN:
        return item.name
    if item.kind is not ItemKind.TRANSFER:
        return f"{item.kind} {item.name}"
    return f"weights → {item.name.partition('->')[2].partition(':')[0]}"
