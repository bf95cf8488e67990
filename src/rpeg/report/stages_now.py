"""How far each stage is, what waits for it and how old the weights are that it reads, from the driver's log."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from rpeg.ir import Kind
from rpeg.plan import Item, ItemKind, Plan, lower
from rpeg.trace import Entry, What

KEPT_STEPS = 20


@dataclass(frozen=True)
class StageNow:
    """A stage at some moment. step: the latest that it has begun, -1 before the first. runs: whether it is at work.

    share: of that step that is done, 0 to 1; None where nothing tells. waiting: samples that have left their generator
    and are not taken yet; None where it takes none. typical_seconds: of one of its steps, None before the first.
    versions: of the models that it reads. age: how many updates the oldest of them is behind the newest at that step.
    """

    name: str
    step: int = -1
    runs: bool = False
    share: float | None = None
    waiting: int | None = None
    typical_seconds: float | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    age: int = 0


@dataclass
class _Stage:
    """What the log has said of a stage so far."""

    items: int
    generates: bool
    source: str | None
    step: int = -1
    ended: int = 0
    asked: int = 0
    made: int = 0
    begun_seconds: float = 0.0
    taken: int = 0
    left: int = 0
    running: set[Item] = field(default_factory=set)
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    versions: Mapping[str, int] = field(default_factory=dict)


class StagesNow:
    """Follows all stages of a plan."""

    def __init__(self, plan: Plan) -> None:
        graph, lowered = plan.graph, lower(plan.graph, plan.assignments, plan.workload)
        items = Counter(slot.name for slot in lowered.tasks if slot.kind is ItemKind.RUN)
        self._stages: dict[str, _Stage] = {}
        for stage in graph.stages:
            generates = stage.kind is Kind.GENERATE
            covers = any(task.covers for task in lowered.tasks_of(stage.name))
            source = next(iter(graph.generators_of(stage.name)), None) if covers and not generates else None
            self._stages[stage.name] = _Stage(items[stage.name], generates, source)
        self._trainers = [stage.name for stage in graph.stages if stage.kind is Kind.TRAIN]

    def on_entry(self, entry: Entry) -> None:
        stage = self._stages.get(entry.item.name)
        if stage is None or entry.item.kind is not ItemKind.RUN:
            return
        if entry.what is What.LAUNCH:
            self._begin(stage, entry)
        elif entry.what is What.PRODUCED:
            stage.left += len(entry.ids)
            stage.made += len(entry.ids) if entry.item.step == stage.step else 0
        elif entry.what in (What.FINISHED, What.FAILED):
            stage.running.discard(entry.item)
            if entry.item.step == stage.step:
                stage.ended += 1
                if stage.ended == stage.items:
                    stage.seconds.append(entry.seconds - stage.begun_seconds)

    def now(self, seconds: float) -> tuple[StageNow, ...]:
        """All stages in the graph's order. seconds: the time, by the driver's clock."""
        return tuple(self._now(name, stage, seconds) for name, stage in self._stages.items())

    @property
    def untrained(self) -> int:
        """Samples that have been generated and that no trainer has taken."""
        return max((self._waiting(self._stages[name]) or 0 for name in self._trainers), default=0)

    def _begin(self, stage: _Stage, entry: Entry) -> None:
        if entry.item.step > stage.step:
            stage.step, stage.ended, stage.asked, stage.made = entry.item.step, 0, 0, 0
            stage.begun_seconds = entry.seconds
        stage.running.add(entry.item)
        stage.asked += len(entry.ids)
        stage.taken += len(entry.ids)
        stage.versions = entry.versions

    def _now(self, name: str, stage: _Stage, seconds: float) -> StageNow:
        typical = median(stage.seconds) if stage.seconds else None
        oldest = min(stage.versions.values(), default=stage.step)
        return StageNow(
            name,
            stage.step,
            bool(stage.running),
            self._share(stage, seconds, typical),
            self._waiting(stage),
            typical,
            stage.versions,
            max(0, stage.step - oldest),
        )

    def _share(self, stage: _Stage, seconds: float, typical: float | None) -> float | None:
        if not stage.running:
            return None
        if stage.generates and stage.asked:
            return min(1.0, stage.made / stage.asked)
        if stage.items > 1:
            return stage.ended / stage.items
        return min(1.0, (seconds - stage.begun_seconds) / typical) if typical else None

    def _waiting(self, stage: _Stage) -> int | None:
        if stage.source is None:
            return None
        return max(0, self._stages[stage.source].left - stage.taken)
