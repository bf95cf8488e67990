"""The simulator: a heap of timed events that drives the scheduler which also drives real runs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from rpeg.errors import RunError
from rpeg.ir import KEPT, Kind
from rpeg.plan import Cell, Item, ItemKind, Plan, Task
from rpeg.schedule import (
    Cancel,
    Command,
    Event,
    Finished,
    Kept,
    Launch,
    Produced,
    Rejected,
    Scheduler,
    SyncWeights,
    Work,
    command_entry,
    event_entry,
    share,
)
from rpeg.sim.costs import Batch, Costs
from rpeg.sim.lengths import Draws
from rpeg.sim.selection import REJECTED, judge
from rpeg.sim.stream import departures
from rpeg.trace import OVER_QUOTA, Entry, Span, Trace

_MOST_SHARES = 256


def simulate(
    plan: Plan,
    costs: Costs,
    steps: int,
    seed: int = 0,
    first_step: int = 0,
    draws: Draws | None = None,
    *,
    samples: bool = True,
) -> Trace:
    """Steps first_step … steps - 1 of a plan on a virtual clock that starts at 0.

    A function of its arguments alone. Lengths of step t are `workload.draw(seed, t)`. A span's worker is its lane.
    draws: those of this workload and seed, where they are kept already. samples: whether spans say which they worked
    on; times need it not. Raises RunError where nothing runs and items
    wait, naming who waits for whom (no plan that passes `check` does).
    """
    draws = draws or Draws(plan.workload, seed)
    return _Simulation(plan, costs, steps, seed, first_step, draws, samples).run()


class _Simulation:
    """One run: the clock, the events to come and the trace so far."""

    def __init__(
        self,
        plan: Plan,
        costs: Costs,
        steps: int,
        seed: int,
        first_step: int,
        draws: Draws,
        samples: bool,
    ) -> None:
        self._samples = samples
        self._plan, self._costs = plan, costs
        self._steps, self._first_step = steps, first_step
        self._scheduler = Scheduler(plan, steps, first_step, seed)
        self._draws = draws
        self._left: dict[int, tuple[int, ...]] = {}  # step → what it left to the next
        self._events: list[tuple[float, int, Event]] = []
        self._pushed = 0
        self._entries: list[Entry] = []
        self._spans: list[Span] = []
        self._shares: dict[tuple[int, tuple[Cell, ...]], tuple[Batch, dict[str, Batch]]] = {}

    def run(self) -> Trace:
        self._carry_out(0.0, self._scheduler.start())
        while self._events:
            now, _, event = heapq.heappop(self._events)
            self._entries.append(event_entry(len(self._entries), now, event))
            self._carry_out(now, self._scheduler.on(event))
        if not self._scheduler.done:
            waits = "; ".join(f"{item} waits for {what}" for item, what in self._scheduler.waiting())
            raise RunError(f"the simulation of {self._plan.graph.name} stands still: {waits}")
        spans = tuple(sorted(self._spans, key=lambda span: (span.lane, span.start_seconds, span.launch)))
        return Trace(
            self._plan,
            "simulated",
            self._steps,
            self._first_step,
            tuple(self._entries),
            spans,
            seed=self._scheduler.seed,
        )

    def _carry_out(self, now: float, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Cancel):
                continue
            seq = len(self._entries)
            self._entries.append(command_entry(seq, now, command))
            start = now + self._costs.dispatch_seconds
            end = self._run(command, start)
            self._spans += self._spans_of(command, seq, start, end)

    def _run(self, command: Work, start: float) -> float:
        """Schedules an item's events; returns when it ends."""
        item, selector = command.item, self._plan.graph.selector
        if not isinstance(command, Launch) or self._kind(item) is not Kind.GENERATE:
            end = start + self._costs.duration_seconds(item, self._batch(command))
            if isinstance(command, Launch) and selector is not None and item.name == selector.name:
                self._select(command, end)
        else:
            end = start + self._generate(item, self._scheduler.lowered.tasks[item.slot], command, start)
        self._push(end, Finished(item))
        return end

    def _select(self, launch: Launch, end: float) -> None:
        """What is accepted, rejected, left over or left to the next step."""
        item, selector = launch.item, self._plan.graph.selector
        assert selector is not None
        left = self._left.pop(item.step - 1, ()) if item.part == 0 else ()
        found = judge(launch.ids, launch.wanted, self._plan.workload, self._scheduler.seed, left)
        own = set(launch.ids)
        over = tuple(i for i in found.over if i in own)
        if found.rejected:
            self._push(end, Rejected(item, found.rejected, REJECTED))
        if KEPT in selector.gives and over:
            self._left[item.step] = over
            self._push(end, Kept(item, over))
        elif over:
            self._push(end, Rejected(item, over, OVER_QUOTA))
        if late := tuple(i for i in found.over if i not in own):
            self._push(end, Rejected(item, late, OVER_QUOTA))
        accepted = self._draws.batch(found.accepted)
        for part in self._scheduler.lowered.tasks[item.slot].makes:
            self._push(end, Produced(item, part, accepted.ids, accepted.response_lengths))

    def _generate(self, item: Item, task: Task, launch: Launch, start: float) -> float:
        batch = self._batch(launch)
        done = self._costs.generation(item, batch)
        bases = [self._scheduler.lowered.parts[part] for part in task.covers]
        left = departures(self._plan, item.name, bases, batch, done)
        for part, (offset, positions) in zip(task.covers, left, strict=True):
            members = batch.take(positions)
            self._push(start + offset, Produced(item, part, members.ids, members.response_lengths))
        return done.seconds

    def _batch(self, command: Work) -> Batch:
        return self._draws.batch(command.ids) if isinstance(command, Launch) else Batch()

    def _push(self, seconds: float, event: Event) -> None:
        heapq.heappush(self._events, (seconds, self._pushed, event))
        self._pushed += 1

    def _kind(self, item: Item) -> Kind | None:
        return self._plan.graph.stage(item.name).kind if item.kind is ItemKind.RUN else None

    def _spans_of(self, command: Work, seq: int, start: float, end: float) -> list[Span]:
        item = command.item
        reads, makes = self._versions(command)
        digests = {f"{m}@{v}": f"sim:{m}@{v}" for m, v in [*reads.items(), *makes.items()]}
        memory = self._costs.memory_bytes
        return [
            Span(lane, lane, item, seq, start, end, reads, makes, digests, ids, tokens, memory(item, lane))
            for lane, (ids, tokens) in zip(command.lanes, self._worked(command), strict=True)
        ]

    def _worked(self, command: Work) -> list[tuple[tuple[int, ...], int]]:
        """(ids, tokens) of the samples that an item works on, on each of its lanes; nothing where spans do not say."""
        item, lanes = command.item, command.lanes
        if not self._samples:
            return [((), 0)] * len(lanes)
        prompts = 0 if self._kind(item) is Kind.GENERATE else 1
        return [
            (own.ids, prompts * sum(own.prompt_lengths) + sum(own.response_lengths))
            for own in self._by_lane(item, self._batch(command), lanes)
        ]

    def _by_lane(self, item: Item, batch: Batch, lanes: tuple[str, ...]) -> list[Batch]:
        """The samples of each lane: its data-parallel ranks' shares; lanes of one model replica have the same."""
        if len(lanes) == 1 or item.kind is not ItemKind.RUN:
            return [batch] * len(lanes)
        cells = self._scheduler.lowered.held.cells(self._plan.assignment(item.name), lanes)
        key = (
            id(batch),
            cells,
        )  # stages of a step work on the same batch, which is kept alive with its shares
        if key not in self._shares:
            if len(self._shares) >= _MOST_SHARES:
                self._shares.clear()
            self._shares[key] = (batch, self._of_cells(batch, cells))
        own = self._shares[key][1]
        return [own[lane] for lane in lanes]

    @staticmethod
    def _of_cells(batch: Batch, cells: tuple[Cell, ...]) -> dict[str, Batch]:
        equal = len({len(cell.replicas) for cell in cells}) == 1  # then each cell is as good as one rank
        ranks = [1 if equal else len(cell.replicas) for cell in cells]
        shares = iter(share(batch.ids, batch.response_lengths, sum(ranks)))
        position = {sample_id: i for i, sample_id in enumerate(batch.ids)}
        own: dict[str, Batch] = {}
        for cell, count in zip(cells, ranks, strict=True):
            ids = [i for _ in range(count) for i in next(shares)]
            own.update(dict.fromkeys(cell.lanes, batch.take([position[i] for i in ids])))
        return own

    def _versions(self, command: Work) -> tuple[dict[str, int], dict[str, int]]:
        """Versions that an item reads and makes."""
        if isinstance(command, SyncWeights):
            return {command.model: command.version}, {}
        if not isinstance(command, Launch):
            return {}, {}
        reads = dict(command.versions)
        if self._kind(command.item) is not Kind.TRAIN or not self._scheduler.lowered.ends(command.item.slot):
            return reads, {}
        return reads, dict.fromkeys(reads, command.item.step + 1)
