"""A run as it goes: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rpeg.plan import Plan
from rpeg.report.activity import Activity, short_name
from rpeg.report.lane_groups import Group as Lanes
from rpeg.report.lane_groups import lane_groups
from rpeg.report.stages_now import StageNow, StagesNow
from rpeg.report.step_lines import Saved, Step, evaluation_line, sparkline, step_line
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
MOST_LANES, MOST_CELLS, BAR_CELLS = 12, 96, 10


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
    """Progress, stages and what waits for them, what devices do, reward, speed and alarms, a few times a second."""

    def __init__(self, console: Console, plan: Plan, steps: int, first_step: int = 0) -> None:
        self.plan, self.steps, self.done = plan, steps, first_step
        self.groups = lane_groups(plan, MOST_LANES)
        self.activity = Activity(lane for group in self.groups for lane in group.seen)
        self.stages = StagesNow(plan)
        self.rewards: list[float] = []
        self.seconds: list[float] = []
        self.notes: list[str] = []
        self.alarms: list[str] = []
        self.status = "starting"
        self.last: Step | None = None
        names = [s.name for s in plan.graph.stages]
        self._colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
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
        self.stages.on_entry(entry)

    def on_stage(self, text: str) -> None:
        self.status = text

    def on_step(self, record: Step) -> None:
        self.done, self.last = record.step + 1, record
        self.seconds.append(record.seconds)
        if record.reward is not None:
            self.rewards.append(record.reward)

    def on_evaluation(self, step: int, accuracy: float, metrics: Mapping[str, float]) -> None:
        self._note(evaluation_line(step, accuracy, metrics))

    def on_checkpoint(self, checkpoint: Saved) -> None:
        self._note(f"checkpoint after {checkpoint.steps} steps")

    def on_warning(self, text: str) -> None:
        self.alarms = [*self.alarms[-2:], f"warning: {text}"]

    def on_stopping(self, steps: int) -> None:
        self.status = f"stopping with a checkpoint after {steps} steps; once more Ctrl-C ends at once"

    def _note(self, text: str) -> None:
        self.notes = [*self.notes[-2:], text]

    def _draw(self) -> RenderableType:
        if self._offset is not None:
            self.activity.now = max(self.activity.now, time.monotonic() + self._offset)
        if not self.activity.begun:
            return Spinner("dots", Text(self.status))
        return self.picture(self._live.console.width)

    def picture(self, width: int) -> RenderableType:
        """Everything, as it is at `activity.now`. width: of the terminal, in columns."""
        parts: list[RenderableType] = [
            self._head(),
            self._stages(),
            self._lanes(width),
            *self._numbers(width),
        ]
        return Group(*parts, *map(Text, self.notes), *(Text(text, style="yellow") for text in self.alarms))

    def _head(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        left = median(self.seconds) * (self.steps - self.done) if self.seconds else 0.0
        until = f", {seconds_text(left)} left" if self.seconds else ""
        bar = ProgressBar(total=self.steps, completed=self.done, width=20)
        grid.add_row(f"step {self.done}/{self.steps}", bar, Text(f"{self.status}{until}"))
        return grid

    def _stages(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1))
        for justify in ("left", "right", "left", "right", "right", "left"):
            grid.add_column(justify=justify, no_wrap=True)
        grid.add_row("", "step", "", "samples wait", "takes", "reads", style="dim")
        for stage in self.stages.now(self.activity.now):
            name = Text(f"{BLOCK} ", style=self._style(stage.name)) + Text(stage.name, style="default")
            versions = " ".join(f"{model} v{version}" for model, version in stage.versions.items())
            age = f" ({stage.age} old)" if stage.age else ""
            grid.add_row(
                name,
                str(stage.step) if stage.step >= 0 else "",
                _bar(stage),
                "" if stage.waiting is None else f"{stage.waiting:,}",
                "" if stage.typical_seconds is None else seconds_text(stage.typical_seconds),
                f"{versions}{age}",
            )
        return grid

    def _lanes(self, width: int) -> RenderableType:
        window = self._window_seconds
        shown = self.groups[:MOST_LANES]
        longest = max(len(group.name) for group in shown)
        cells = max(16, min(MOST_CELLS, width - longest - 36))
        table = Table.grid(padding=(0, 1))
        for no_wrap in (True, True, True, False):
            table.add_column(no_wrap=no_wrap)
        for group in shown:
            strip = Text()
            for name in self.activity.strip(group.seen, window, cells):
                strip.append(
                    IDLE if name is None else BLOCK, style="dim" if name is None else self._style(name)
                )
            share = f"{self.activity.busy_share(group.seen, window):4.0%}"
            table.add_row(
                group.name, strip, share, Text(self._doing(group), overflow="ellipsis", no_wrap=True)
            )
        if more := self.groups[MOST_LANES:]:
            table.add_row(f"… and {sum(len(group.lanes) for group in more)} lanes more", "", "", "")
        table.add_row(Text(f"last {seconds_text(window)}", style="dim"), "", "", "")
        return table

    def _doing(self, group: Lanes) -> str:
        found = self.activity.current(group.seen)
        if not found:
            return "idle"
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"{short_name(found[0])} {found[0].step}{more}"

    @property
    def _window_seconds(self) -> float:
        """About four steps."""
        return max(2.0, 4 * median(self.seconds)) if self.seconds else 4.0

    def _numbers(self, width: int) -> list[RenderableType]:
        if self.last is None:
            return []
        versions = " ".join(f"{model} v{version}" for model, version in self.last.versions.items())
        stale = self.last.metrics.get("staleness", 0.0)
        line = (
            f"{self.last.tokens_per_second:,.0f} tokens/s · {seconds_text(median(self.seconds[-20:]))} a step · "
            f"{versions} · {self.stages.untrained:,} samples generated and not trained yet"
            + (f" · trained samples are {stale:.2f} versions old" if stale else "")
        )
        numbers: list[RenderableType] = [Text(line)]
        if self.rewards:
            numbers.append(
                Text(f"reward {self.rewards[-1]:.3f}  {sparkline(self.rewards, min(60, width - 16))}")
            )
        return numbers

    def _style(self, name: str) -> str:
        return self._colour.get(name, "white")


def _bar(stage: StageNow) -> str:
    """How much of a stage's step is done."""
    if not stage.runs:
        return ""
    if stage.share is None:
        return "at work"
    full = round(stage.share * BAR_CELLS)
    return "▰" * full + "▱" * (BAR_CELLS - full)


def make_view(console: Console, plan: Plan, steps: int, first_step: int = 0) -> PlainView | LiveView:
    """Live on a terminal, plain lines elsewhere."""
    return LiveView(console, plan, steps, first_step) if console.is_terminal else PlainView(console, steps)
