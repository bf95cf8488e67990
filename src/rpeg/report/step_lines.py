"""What became of a step, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Protocol

from rpeg.units import seconds_text

SPARKS = "▁▂▃▄▅▆▇█"


class Step(Protocol):
    """What a view shows of a step; see `rpeg.runtime.StepRecord`."""

    @property
    def step(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def reward(self) -> float | None: ...
    @property
    def tokens_per_second(self) -> float: ...
    @property
    def truncated(self) -> float: ...
    @property
    def versions(self) -> Mapping[str, int]: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


class Saved(Protocol):
    """A checkpoint; see `rpeg.runtime.Checkpoint`."""

    @property
    def steps(self) -> int: ...


def evaluation_line(step: int, accuracy: float, metrics: Mapping[str, float]) -> str:
    """An evaluation in one line; of several responses to a prompt also how often one of k solves it."""
    passes = [(name.removeprefix("eval/"), value) for name, value in metrics.items() if "/pass@" in name]
    more = "".join(f", {name} {value:.3f}" for name, value in passes if len(passes) > 1)
    return f"after {step} steps: held-out accuracy {accuracy:.3f}{more}"


def step_line(record: Step, steps: int) -> str:
    """``step 12/60  reward 0.412  1,234 tokens/s  0.52 s``"""
    reward = "  reward   –  " if record.reward is None else f"  reward {record.reward:.3f}"
    stale = record.metrics.get("staleness", 0.0)
    more = f"  staleness {stale:.2f}" if stale else ""
    if asked := record.metrics.get("selection/asked"):
        more += f"  {record.metrics['selection/accepted']:.0f} of {asked:.0f} groups"
    cut = f"  cut {record.truncated:.0%}" if record.truncated else ""
    width = len(str(steps))
    speed = f"  {record.tokens_per_second:7,.0f} tokens/s  {seconds_text(record.seconds)}"
    return f"step {record.step + 1:{width}d}/{steps}{reward}{speed}{more}{cut}"


def sparkline(values: list[float], width: int) -> str:
    """The last values as bars, averaged down to at most `width` of them."""
    if not values:
        return ""
    count = min(width, len(values))
    bounds = [len(values) * i // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(means), max(means)
    span = (high - low) or 1.0
    return "".join(SPARKS[round((m - low) / span * (len(SPARKS) - 1))] for m in means)
