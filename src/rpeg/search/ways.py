"""Ways of running a stage on a block: those that are worth a row of the search's tables, found without pricing all."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rpeg.search.model import Floats, Profile
from rpeg.sim.costs import Batch
from rpeg.sim.hardware.alone import Alone, Taken
from rpeg.sim.hardware.many import Choices

MOST = 6
"""Options of a stage on a block that are kept: the fastest of those that no other beats in time and memory at once."""

_ROUNDING = 1e-9
"""Of sums of seconds in different orders."""


@dataclass(frozen=True)
class Drafted:
    """An option before all that it holds is known. seconds: (models, items, draws)."""

    alone: Alone
    seconds: Floats
    taken: tuple[Taken, ...]

    @property
    def layout(self) -> tuple[int, ...]:
        return self.alone.assignment.parallelism.layout

    @cached_property
    def first(self) -> float:
        """Seconds of the first draw, from its first item."""
        return float(self.seconds[:, 0, 0].sum()) * int(self.seconds.shape[1])

    @property
    def order(self) -> tuple[float, float, float]:
        """The fastest first; of equals what needs least memory."""
        return self.first, self.peak, self.resting

    @cached_property
    def peak(self) -> float:
        return sum(one.peak for one in self.taken)

    @cached_property
    def resting(self) -> float:
        return sum(one.resting for one in self.taken)


@dataclass(frozen=True)
class Way:
    """Of running a stage. larger: the same with larger micro-batches, which is taken instead where it fits."""

    alone: Alone
    larger: Way | None = None

    @cached_property
    def taken(self) -> tuple[Taken, ...]:
        return self.alone.taken()

    def fits(self, capacity_bytes: float) -> bool:
        """Whether it does, and none with larger micro-batches."""
        replaced = self.larger is not None and self.larger._some_fits(capacity_bytes)
        return not replaced and self._within(capacity_bytes)

    def _some_fits(self, capacity_bytes: float) -> bool:
        larger = self.larger is not None and self.larger._some_fits(capacity_bytes)
        return larger or self._within(capacity_bytes)

    def _within(self, capacity_bytes: float) -> bool:
        return max(one.peak for one in self.taken) <= capacity_bytes


def best(
    ways: Sequence[Way], profile: Profile, capacity_bytes: float, wished: frozenset[tuple[int, ...]]
) -> list[Drafted]:
    """Of ways of running a stage that trains or scores, the first `MOST` that nothing beats of all that fit.

    In the order of what each takes at least, until none that is left can be among them. wished: layouts of which one is
    kept even where it is beaten.
    """
    if not ways:
        return []
    choices = Choices([way.alone for way in ways], batches_of(profile))
    least = [choices.least_seconds(i) * profile.items * (1 - _ROUNDING) for i in range(len(ways))]
    kept: list[Drafted] = []
    found: list[Drafted] = []
    for i in sorted(range(len(ways)), key=least.__getitem__):
        if len(kept) == MOST and kept[-1].first < least[i]:
            break
        way = ways[i]
        if way.fits(capacity_bytes) and not _hopeless(way, least[i], kept, wished):
            one = Drafted(way.alone, by_draw(choices.seconds(i), profile), way.taken)
            insort(found, one, key=lambda each: each.order)
            kept = undominated(found, wished)
    return kept


def batches_of(profile: Profile) -> list[Batch]:
    """Of all draws, one after another."""
    return [batch for drawn in profile.batches for batch in drawn]


def by_draw(seconds: Floats, profile: Profile) -> Floats:
    """(models, draws × items) → (models, items, draws)."""
    return seconds.reshape(len(seconds), profile.draws, profile.items).transpose(0, 2, 1)


def _hopeless(
    way: Way, least_seconds: float, kept: Sequence[Drafted], wished: frozenset[tuple[int, ...]]
) -> bool:
    """Whether an option that is kept already surely beats it."""
    if way.alone.assignment.parallelism.layout in wished:
        return False
    peak, resting = (sum(column) for column in zip(*way.taken, strict=True))
    faster = (one for one in kept if one.first < least_seconds)
    return any(_beats(one, peak, resting) for one in faster)


def _beats(one: Drafted, peak: float, resting: float) -> bool:
    """In memory, whatever the seconds."""
    return one.peak <= peak * 1.001 and one.resting <= resting * 1.001


def undominated(found: Sequence[Drafted], wished: frozenset[tuple[int, ...]]) -> list[Drafted]:
    """Of options in their order those that need less than all before them, and the first of each layout that is wished
    for; the first `MOST`."""
    kept: list[Drafted] = []
    seen: set[tuple[int, ...]] = set()
    for option in found:
        beaten = any(_beats(other, option.peak, option.resting) for other in kept)
        if not beaten or (option.layout in wished and option.layout not in seen):
            kept.append(option)
            seen.add(option.layout)
    return kept[:MOST]
