"""A run as it goes: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise
from statistics import median
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rpeg.plan import Plan
from rpeg.report.activity import Activity, short_name
from rpeg.trace import Entry
from rpeg.units import seconds_text

COLOURS = (
    "cyan",
    "magenta",
    "green",
    "yellow",
    "blue",
    "red",
    "bright_cyan",
    "bright_magenta",
    "bright_green",
)
BLOCK, IDLE = "█", "·"
SPARKS = "▁▂▃▄▅▆▇█"
STRIP_CELLS = 48


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


class PlainView:
    """One line a step, for logs and pipes."""

    def __init__(self, console: Console, steps: int) -> None:
        self.console, self.steps = console, steps

    def on_entry(self, entry: Entry) -> None:
        pass

    def on_stage(self, text: str) -> None:
        self._say(text)

    def on_step(self, record: Step) -> None:
        self._say(step_line(record, self.steps))

    def on_evaluation(self, step: int, accuracy: float, metrics: Mapping[str, float]) -> None:
        self._say(evaluation_line(step, accuracy, metrics))

    def on_checkpoint(self, checkpoint: Saved) -> None:
        self._say(f"checkpoint after {checkpoint.steps} steps")

    def on_warning(self, text: str) -> None:
        self._say(f"warning: {text}")

    def on_stopping(self, steps: int) -> None:
        self._say(f"stopping with a checkpoint after {steps} steps; once more Ctrl-C ends at once")

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)


class LiveView:
    """Progress, what every device does, reward, speed and versions, redrawn a few times a second."""

    def __init__(self, console: Console, plan: Plan, steps: int, first_step: int = 0) -> None:
        self.plan, self.steps, self.done = plan, steps, first_step
        self.activity = Activity()
        self.rewards: list[float] = []
        self.seconds: list[float] = []
        self.notes: list[str] = []
        self.status = "starting"
        self.last: Step | None = None
        names = [s.name for s in plan.graph.stages]
        self._colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
        self._lanes = sorted({lane for a in plan.assignments for lane in a.all_lanes()})
        self._offset: float | None = None
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._live.refresh()
        self._live.__exit__(None, None, None)

    def on_entry(self, entry: Entry) -> None:
        self._offset = entry.seconds - time.monotonic()
        self.activity.on_entry(entry)

    def on_stage(self, text: str) -> None:
        self.status = text

    def on_step(self, record: Step) -> None:
        self.done, self.last = record.step + 1, record
        self.seconds.append(record.seconds)
        if record.reward is not None:
            self.rewards.append(record.reward)
        self.activity.on_step_trained(self.plan.workload.prompts * self.plan.workload.samples_per_prompt)

    def on_evaluation(self, step: int, accuracy: float, metrics: Mapping[str, float]) -> None:
        self._note(evaluation_line(step, accuracy, metrics))

    def on_checkpoint(self, checkpoint: Saved) -> None:
        self._note(f"checkpoint after {checkpoint.steps} steps")

    def on_warning(self, text: str) -> None:
        self._note(f"warning: {text}")

    def on_stopping(self, steps: int) -> None:
        self.status = f"stopping with a checkpoint after {steps} steps; once more Ctrl-C ends at once"

    def _note(self, text: str) -> None:
        self.notes = [*self.notes[-3:], text]

    def _draw(self) -> RenderableType:
        if self._offset is not None:
            self.activity.now = max(self.activity.now, time.monotonic() + self._offset)
        if not self.activity.lanes:
            return Spinner("dots", Text(self.status))
        return Group(self._head(), self._devices(), self._legend(), *self._numbers(), *map(Text, self.notes))

    def _head(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        left = median(self.seconds) * (self.steps - self.done) if self.seconds else 0.0
        until = f", {seconds_text(left)} left" if self.seconds else ""
        bar = ProgressBar(total=self.steps, completed=self.done, width=30)
        grid.add_row(f"step {self.done}/{self.steps}", bar, Text(f"{self.status}{until}"))
        return grid

    def _devices(self) -> RenderableType:
        window = self._window_seconds
        table = Table.grid(padding=(0, 1))
        for lane in self._lanes:
            strip = Text()
            for item in self.activity.strip(lane, window, STRIP_CELLS):
                strip.append(
                    IDLE if item is None else BLOCK, style="dim" if item is None else self._style(item.name)
                )
            current = self.activity.current(lane)
            doing = f"{short_name(current)} (step {current.step})" if current else "waits for its next item"
            table.add_row(lane, strip, f"{self.activity.busy_share(lane, window):4.0%}", Text(doing))
        return table

    @property
    def _window_seconds(self) -> float:
        """About four steps."""
        return max(2.0, 4 * median(self.seconds)) if self.seconds else 4.0

    def _legend(self) -> RenderableType:
        text = Text(f"the last {seconds_text(self._window_seconds)}:  ")
        for stage in self.plan.graph.stages:
            text.append(f"{BLOCK} ", style=self._colour[stage.name])
            text.append(f"{stage.name}  ")
        return text

    def _numbers(self) -> list[RenderableType]:
        if self.last is None:
            return []
        versions = " ".join(f"{model} v{version}" for model, version in self.last.versions.items())
        line = (
            f"{self.last.tokens_per_second:,.0f} tokens/s · {seconds_text(median(self.seconds[-20:]))} a step · "
            f"{versions} · "
            f"{self.activity.queued_samples} samples generated and not trained yet"
        )
        reward = f"reward {self.rewards[-1]:.3f}  {sparkline(self.rewards, 60)}" if self.rewards else ""
        return [Text(line), Text(reward)]

    def _style(self, name: str) -> str:
        return self._colour.get(name, "white")


def make_view(console: Console, plan: Plan, steps: int, first_step: int = 0) -> PlainView | LiveView:
    """Live on a terminal, plain lines elsewhere."""
    return LiveView(console, plan, steps, first_step) if console.is_terminal else PlainView(console, steps)


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
