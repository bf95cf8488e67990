"""The driver: a thin asyncio shell round the scheduler.

Commands become calls of workers, what workers answer becomes events, and both are written down with one sequence of
numbers. When something starts is decided by the scheduler from what has happened; no time is ever predicted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rpeg.backends.disk import FULL, disk_trouble
from rpeg.errors import RpegError, RunError
from rpeg.ir import Kind
from rpeg.plan import Item, ItemKind, Plan
from rpeg.runtime.checkpoints import Checkpoints, reach
from rpeg.runtime.dispatch import Calls, Dispatch, Handle
from rpeg.runtime.failure import Failure, Stalled, WorkerFailed, cause_of, error_text, is_of_a_peer
from rpeg.runtime.record import StepRecord, Tally
from rpeg.runtime.run_directory import Checkpoint
from rpeg.runtime.work import Answer, Part, Verdict
from rpeg.schedule import (
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    Kept,
    Launch,
    Produced,
    Rejected,
    Scheduler,
    command_entry,
    event_entry,
)
from rpeg.trace import Entry, JsonLines, driver_file


class Watcher(Protocol):
    """Whoever wants to see a run as it goes: a live view, or nobody."""

    def on_entry(self, entry: Entry) -> None: ...

    def on_step(self, record: StepRecord) -> None: ...

    def on_evaluation(self, step: int, accuracy: float, metrics: Mapping[str, float]) -> None: ...

    def on_checkpoint(self, checkpoint: Checkpoint) -> None: ...

    def on_warning(self, text: str) -> None: ...


class Driver:
    """Runs a plan's steps on workers.

    handles: by lane; the lanes of one worker have the same one. broadcasts: references to the weights that the run
    begins with, by model and version; one of each rank that has a part of them.
    stall_seconds: without any event for so long, the run is given up and the report says who waits for whom.
    """

    def __init__(
        self,
        plan: Plan,
        steps: int,
        first_step: int,
        handles: Mapping[str, Handle],
        broadcasts: Mapping[tuple[str, int], Sequence[Any]],
        trace: Path,
        checkpoints: Checkpoints,
        watcher: Watcher,
        stall_seconds: float,
    ) -> None:
        self.plan, self.steps, self.first_step = plan, steps, first_step
        self.scheduler = Scheduler(plan, steps, first_step, checkpoints.seed)
        self.watcher, self.checkpoints = watcher, checkpoints
        self.stall_seconds = stall_seconds
        self.dispatch = Dispatch(plan, steps, self.scheduler.lowered, handles, broadcasts, checkpoints)
        self.records: list[StepRecord] = []
        self.evaluations: dict[int, float] = {}
        self._log = JsonLines(driver_file(trace))
        self._seq = 0
        self._events: asyncio.Queue[Event | RunError] = asyncio.Queue()
        self._commits: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: dict[str, WorkerFailed] = {}
        self._tallies: dict[int, Tally] = {}
        self._training: dict[int, int] = {}
        self._trainers = [s.name for s in plan.graph.stages if s.kind is Kind.TRAIN]
        self._step_ended = 0.0
        self._stop_after: int | None = None
        self._observed: dict[int, int] = {}
        self._warned: set[str] = set()
        self._trace = trace

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_after is not None

    @property
    def stopped_early(self) -> bool:
        """Whether the stop that was requested leaves steps undone."""
        return self._stop_after is not None and self._stop_after < self.steps

    def request_stop(self) -> int:
        """Stops with a checkpoint, says after how many steps: the first of which no version that belongs into it has
        been begun."""
        if self._stop_after is None:
            begun = max(self._training, default=self.first_step - 1)
            self._stop_after = min(self.steps, begun + 1 + reach(self.scheduler.lowered.copies))
            self.checkpoints.requested.add(self._stop_after)
        return self._stop_after

    async def run(self) -> None:
        """Until the last step's end, or a requested stop. Raises RunError where an item fails or nothing moves."""
        # The loop's clock is the monotonic one, or a virtual one where workers only pretend.
        self._seconds = asyncio.get_running_loop().time
        self._step_ended = self._heard = self._seconds()
        self._watch()
        try:
            self._obey(self.scheduler.start())
            while not self.scheduler.done and not self._may_stop():
                event = await self._next_event()
                self._write(partial(event_entry, event=event))
                commands = self.scheduler.on(event)
                if isinstance(event, Finished):
                    self._on_finished(event.item)
                self._obey(commands)
            await asyncio.gather(*self._commits)
            while not self._events.empty():
                await self._next_event()
        finally:
            self._watchdog.cancel()
            tasks = [*self._tasks, *self._commits]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._log.close()

    def _may_stop(self) -> bool:
        if self._stop_after is None or self._stop_after == self.steps:
            return False
        return len(self.records) >= self._stop_after - self.first_step

    async def _next_event(self) -> Event:
        event = await self._events.get()
        if isinstance(event, RunError):
            raise event
        self._heard = self._seconds()
        return event

    def _watch(self) -> None:
        """Gives the run up where nothing was heard for long: one timer, looked at when it comes, for all events."""
        if self._seconds() < self._heard + self.stall_seconds:
            loop = asyncio.get_running_loop()
            self._watchdog = loop.call_at(self._heard + self.stall_seconds, self._watch)
            return
        self._events.put_nowait(Stalled(self.stall_seconds, self.who_waits()))

    def running(self) -> list[tuple[Item, Sequence[str]]]:
        """Items that run, with their lanes."""
        return [(i, self.scheduler.lowered.tasks[i.slot].lanes) for i in self.scheduler.running]

    def who_waits(self) -> str:
        """What runs and what waits for what, one a line."""
        running = [f"  running: {item} on {', '.join(lanes)}" for item, lanes in self.running()]
        waiting = [f"  waiting: {item} for {what}" for item, what in self.scheduler.waiting()]
        return "\n".join(running + waiting)

    # Commands

    def _obey(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Cancel):
                raise self._failures.get(command.reason) or RunError(command.reason)
            entry = self._write(partial(command_entry, command=command))
            if isinstance(command, Launch) and command.item.name in self._trainers:
                self._training.setdefault(command.item.step, 0)
            self._spawn(self._item(command.item, self.dispatch.calls(command, entry.seq)))

    async def _item(self, item: Item, calls: Calls) -> None:
        """Follows an item on all its lanes; it has finished when all have."""
        try:
            if len(calls) == 1:  # a task less
                await self._follow(item, calls[0][1], calls[0][0])
            else:
                await asyncio.gather(*(self._follow(item, call, lanes) for lanes, call in calls))
        except asyncio.CancelledError:
            raise
        except WorkerFailed as error:
            failure = error.failure
            self._failures[failure.text] = error
            self._events.put_nowait(Failed(item, f"worker {failure.lane}: {failure.why}"))
        except Exception as error:  # noqa: BLE001 - whatever a worker dies of is an event
            self._events.put_nowait(Failed(item, error_text(error)))
        else:
            self._events.put_nowait(Finished(item))

    async def _follow(self, item: Item, call: AsyncIterator[Answer], lanes: tuple[str, ...]) -> None:
        try:
            await self._take_answers(item, call)
        except RpegError:
            raise
        except Exception as error:
            name = lanes[0] if len(lanes) == 1 else f"of {lanes[0]} … {lanes[-1]}"
            why, cause = error_text(error), cause_of(error)
            if isinstance(cause, OSError) and cause.errno in FULL:  # no restart makes room
                raise RunError(f"worker {name}: cannot write {disk_trouble(cause)}") from error
            raise WorkerFailed(Failure(name, str(item), item.step, why, is_of_a_peer(why))) from error

    async def _take_answers(self, item: Item, call: AsyncIterator[Answer]) -> None:
        async for answer in call:
            if isinstance(answer, Part):
                self.dispatch.batches.add_part(item, answer.part, answer.batch)
                self._events.put_nowait(Produced(item, answer.part, answer.ids, answer.lengths))
                continue
            if isinstance(answer, Verdict):
                event = Kept(item, answer.ids) if answer.kept else Rejected(item, answer.ids, answer.why)
                self._events.put_nowait(event)
                continue
            if answer.batch is not None:
                self.dispatch.batches.add(item, answer.batch)
            for model, reference in answer.published.items():
                self.dispatch.broadcasts.setdefault((model, item.step + 1), []).append(reference)
            self.checkpoints.expect(answer.marks)
            self._tallies.setdefault(item.step, Tally()).add(answer.metrics)
            for text in answer.warnings:
                if text not in self._warned:
                    self._warned.add(text)
                    self.watcher.on_warning(text)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Events

    def _on_finished(self, item: Item) -> None:
        step = item.step
        if item.name in self._trainers and self.scheduler.lowered.ends(item.slot):
            self._training[step] += 1
            if self._training[step] == len(self._trainers):
                self._on_step(step)
        if item.kind is ItemKind.RUN and item.name in self.plan.graph.observers():
            accuracy = self._tallies[step].accuracy()
            replicas = len(self.scheduler.lowered.tasks_of(item.name))
            self._observed[step] = self._observed.get(step, 0) + 1
            if accuracy is not None and self._observed[step] == replicas:
                self.evaluations[step] = accuracy
                self.watcher.on_evaluation(step, accuracy, self._tallies[step].evaluation())

    def _on_step(self, step: int) -> None:
        """Every trained model has its new version."""
        if not self._trace.exists():
            raise RunError(f"{self._trace} has been removed while the run was writing into it")
        now = self._seconds()
        versions = {model.name: step + 1 for model in self.plan.graph.models if model.trainable}
        record = self._tallies[step].record(step, now - self._step_ended, versions)
        self._step_ended = now
        self.records.append(record)
        self.watcher.on_step(record)
        if self.checkpoints.wanted(step + 1, self.steps):
            self._commits.append(asyncio.create_task(self._commit(step + 1)))
        reach = 1 + max((copy.delay for copy in self.scheduler.lowered.copies), default=1)
        self.dispatch.forget(step)
        self._tallies.pop(step - reach - 1, None)

    async def _commit(self, steps: int) -> None:
        try:
            copies = self.scheduler.lowered.copies
            self.watcher.on_checkpoint(await self.checkpoints.commit(steps, self.first_step, copies))
        except OSError as error:
            self._events.put_nowait(RunError(f"cannot write the checkpoint after {steps} steps: {error}"))

    def _write(self, make: Callable[[int, float], Entry]) -> Entry:
        entry = make(self._seq, self._seconds())
        self._seq += 1
        self._log.write(entry.to_json())
        self.watcher.on_entry(entry)
        return entry
