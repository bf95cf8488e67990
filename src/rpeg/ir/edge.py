"""Data and model updates that join stages, within a step and across steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rpeg.ir.stage import Scope

WEIGHTS = "weights:"
RETRY = "retry"
"""The datum of the bounded control edge by which a `select` op asks for another round of its step."""
POSITION, KEPT = "position", "kept"
STATE = frozenset({POSITION, KEPT})
"""Data that a step leaves to the next: the place in the prompts, and accepted samples that the quota had no room for."""


class Unit(StrEnum):
    """What the parts of a stream count."""

    SAMPLE = "sample"
    GROUP = "group"
    MINIBATCH = "minibatch"

    @property
    def covers(self) -> Scope:
        """The largest scope that one unit holds whole."""
        return {Unit.SAMPLE: Scope.SAMPLE, Unit.GROUP: Scope.GROUP, Unit.MINIBATCH: Scope.MINIBATCH}[self]


class Freshness(StrEnum):
    """Which version, among those within the bound, a consumer of weights uses."""

    EXACT = "exact"  # always max(0, t + 1 - delay): replayable whatever the timing
    LATEST = "latest"  # the newest that has arrived


class OnNewWeights(StrEnum):
    """What a generator does when new weights reach it in mid-response."""

    DRAIN = "drain"
    REPREFILL = "reprefill"
    KEEP_KV = "keep_kv"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A message holds `count` units."""

    count: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Edge:
    """`dst` at step t takes `data` that `src` made at step t - delay.

    chunk: how much a message holds; None is the whole batch.
    initial: what the edge carries before its source has run, for delay >= 1.
    A `retry` edge carries nothing: the round of `dst` after this one waits for what `src` says of this one. Rounds are
    bounded by the workload, so that it closes no cycle.
    A weights edge of delay d lets its consumer at step t use versions t+1-d ... t: 1 is synchronous, 1+k is
    bounded asynchrony with staleness k.
    """

    src: str
    dst: str
    data: str
    delay: int = 0
    chunk: Chunk | None = None
    initial: str | None = None
    freshness: Freshness = Freshness.EXACT
    on_new_weights: OnNewWeights = OnNewWeights.DRAIN

    @property
    def model(self) -> str | None:
        """The model whose weights it carries; None for a data edge."""
        return self.data.removeprefix(WEIGHTS) if self.data.startswith(WEIGHTS) else None

    @property
    def is_control(self) -> bool:
        return self.data == RETRY

    @property
    def name(self) -> str:
        return f"{self.src}->{self.dst}:{self.data}"

    def version_bound(self, step: int) -> int:
        """The oldest version that its consumer may use at `step`; also the one that `exact` uses."""
        return max(0, step + 1 - self.delay)
