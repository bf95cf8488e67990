"""What goes wrong on purpose while workers pretend."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Literal

from rpeg.plan import Item

How = Literal["raise", "die", "hang"]


@dataclass(frozen=True)
class Failure:
    """One item that does not end well: its worker raises, its process dies, or nothing is heard of it again.

    name: a stage, or the edge of a movement. replica: of several the one that fails. stretch: of the run, 1 for the
    first: what goes on after a restart is not struck again.
    """

    how: How
    name: str
    step: int
    part: int = 0
    replica: int = 0
    stretch: int = 1

    def strikes(self, item: Item, stretch: int) -> bool:
        own = self.name, self.step, self.part, self.replica, self.stretch
        return own == (item.name, item.step, item.part, item.replica, stretch)


@dataclass(frozen=True)
class Pressure:
    """A lane holds more than was predicted, from a step on: fragments, another process, a leak."""

    lane: str
    first_step: int
    more_bytes: int


@dataclass(frozen=True)
class Injection:
    """The same for the same seed, whatever the order in which it is asked.

    noise: standard deviation of the logarithm of a factor on each item's seconds, whose median is 1.
    delayed: share of the items that begin late, by up to delay_seconds.
    """

    seed: int = 0
    noise: float = 0.0
    delayed: float = 0.0
    delay_seconds: float = 0.0
    failures: tuple[Failure, ...] = ()
    pressures: tuple[Pressure, ...] = ()

    def factor(self, item: Item) -> float:
        """On the seconds of an item."""
        return math.exp(self.noise * self._draw(item, "noise").gauss(0.0, 1.0)) if self.noise else 1.0

    def delay(self, item: Item) -> float:
        """Seconds by which an item begins late."""
        if not self.delayed:
            return 0.0
        draw = self._draw(item, "delay")
        return draw.uniform(0.0, self.delay_seconds) if draw.random() < self.delayed else 0.0

    def failure(self, item: Item, stretch: int) -> How | None:
        """How an item fails in this stretch of the run."""
        return next((failure.how for failure in self.failures if failure.strikes(item, stretch)), None)

    def more_bytes(self, item: Item, lane: str) -> int:
        """That a lane holds while it runs an item, beyond what was predicted."""
        return sum(p.more_bytes for p in self.pressures if p.lane == lane and item.step >= p.first_step)

    def _draw(self, item: Item, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what} {item}")


NOTHING = Injection()
