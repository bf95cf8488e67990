"""What lanes have been doing lately, from the driver's log as it is written."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from rpeg.plan import Item, ItemKind
from rpeg.trace import Entry, What


@dataclass(frozen=True)
class Busy:
    """An item's time on a lane, by the driver's clock; end_seconds is None while it runs."""

    item: Item
    start_seconds: float
    end_seconds: float | None = None

    def overlap(self, start: float, end: float, now: float) -> float:
        """Seconds of start … end that it takes."""
        until = self.end_seconds if self.end_seconds is not None else now
        return max(0.0, min(end, until) - max(start, self.start_seconds))


class Activity:
    """Recent items of some lanes. Of others it takes no notice, so that a gang of thousands costs no more than these."""

    def __init__(self, lanes: Iterable[str], keep_seconds: float = 120.0) -> None:
        self.keep_seconds, self.now, self.begun = keep_seconds, 0.0, False
        self._lanes: dict[str, deque[Busy]] = {lane: deque() for lane in lanes}
        self._on: dict[Item, tuple[str, ...]] = {}

    def on_entry(self, entry: Entry) -> None:
        self.now, self.begun = max(self.now, entry.seconds), True
        if entry.what.begins:
            own = self._on[entry.item] = tuple(lane for lane in entry.lanes if lane in self._lanes)
            for lane in own:
                self._lanes[lane].append(Busy(entry.item, entry.seconds))
        elif entry.what in (What.FINISHED, What.FAILED):
            for lane in self._on.pop(entry.item, ()):
                self._close(self._lanes[lane], entry)

    def current(self, lanes: Iterable[str]) -> list[Item]:
        """What these lanes run now, what most of them do first."""
        last = (self._lanes[lane][-1] for lane in lanes if self._lanes[lane])
        return [item for item, _ in Counter(b.item for b in last if b.end_seconds is None).most_common()]

    def strip(self, lanes: Iterable[str], window_seconds: float, cells: int) -> list[str | None]:
        """The name that filled most of each of `cells` equal pieces of the last `window_seconds` of these lanes; None
        where they were idle for more than half of it."""
        start, width = self.now - window_seconds, window_seconds / cells
        seconds: list[Counter[str]] = [Counter() for _ in range(cells)]
        own = [self._lanes[lane] for lane in lanes]
        for busy in (busy for recent in own for busy in recent):
            until = self.now if busy.end_seconds is None else busy.end_seconds
            first, last = int((busy.start_seconds - start) / width), int((until - start) / width)
            for cell in range(max(0, first), min(cells, last + 1)):
                a = start + cell * width
                seconds[cell][busy.item.name] += busy.overlap(a, a + width, self.now)  # type: ignore[assignment]
        least = width / 2 * len(own)
        return [
            cell.most_common(1)[0][0] if cell and sum(cell.values()) >= least else None for cell in seconds
        ]

    def busy_share(self, lanes: Iterable[str], window_seconds: float) -> float:
        """Share of the last `window_seconds` in which these lanes held an item."""
        own, start = [self._lanes[lane] for lane in lanes], self.now - window_seconds
        total = sum(busy.overlap(start, self.now, self.now) for recent in own for busy in recent)
        return min(1.0, total / (window_seconds * len(own))) if own and window_seconds > 0 else 0.0

    def _close(self, recent: deque[Busy], entry: Entry) -> None:
        for i in range(len(recent) - 1, -1, -1):
            if recent[i].item == entry.item and recent[i].end_seconds is None:
                recent[i] = Busy(entry.item, recent[i].start_seconds, entry.seconds)
                break
        while recent and (recent[0].end_seconds or self.now) < self.now - self.keep_seconds:
            recent.popleft()


def short_name(item: Item) -> str:
    """``train_actor``, ``weights → generate``."""
    if item.kind is ItemKind.RUN:
        return item.name
    if item.kind is not ItemKind.TRANSFER:
        return f"{item.kind} {item.name}"
    return f"weights → {item.name.partition('->')[2].partition(':')[0]}"
