"""From a command to the calls of the workers that carry it out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from rpeg.ir import Kind
from rpeg.plan import Lowered, Plan
from rpeg.runtime.batches import Batches
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.work import Answer, Work
from rpeg.schedule import Launch, SyncWeights
from rpeg.schedule import Work as Command


class Handle(Protocol):
    """How the driver reaches one worker, which serves one lane or several: `Work.lanes` says which run an item."""

    def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]: ...

    def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]: ...

    def move(self, work: Work) -> AsyncIterator[Answer]: ...


Calls = list[tuple[tuple[str, ...], AsyncIterator[Answer]]]
"""(lanes, what their worker answers)."""


class Dispatch:
    """Knows where data lie and who serves which lane.

    broadcasts: references to published weights, by model and version; one of each rank that has a part of them.
    """

    def __init__(
        self,
        plan: Plan,
        steps: int,
        lowered: Lowered,
        handles: Mapping[str, Handle],
        broadcasts: Mapping[tuple[str, int], Sequence[Any]],
        checkpoints: Checkpoints,
    ) -> None:
        self.plan, self.steps, self.lowered = plan, steps, lowered
        self.handles, self.checkpoints = handles, checkpoints
        self.batches = Batches(plan.graph, lowered)
        self.broadcasts = {version: list(parts) for version, parts in broadcasts.items()}
        self._workers: dict[tuple[str, ...], list[tuple[Handle, tuple[str, ...]]]] = {}

    def calls(self, command: Command, seq: int) -> Calls:
        """One of each worker that has lanes of the item. seq: of the command in the driver's log."""
        if isinstance(command, SyncWeights):
            return self._transfer_calls(command, seq)
        if isinstance(command, Launch):
            return self._run_calls(command, seq)
        return self._calls(command.lanes, Work(command.item, seq), lambda handle, own: handle.move(own))

    def forget(self, step: int) -> None:
        """Lets go of what no item after the end of a step can ask for."""
        reach = 1 + max((copy.delay for copy in self.lowered.copies), default=1)
        self.broadcasts = {k: v for k, v in self.broadcasts.items() if k[1] > step - reach}
        self.batches.forget(step - 1)

    def _calls(
        self, lanes: tuple[str, ...], work: Work, call: Callable[[Handle, Work], AsyncIterator[Answer]]
    ) -> Calls:
        """One call of each worker, whichever of its lanes are wanted."""
        if lanes not in self._workers:
            found: dict[int, list[str]] = {}
            for lane in lanes:
                found.setdefault(id(self.handles[lane]), []).append(lane)
            self._workers[lanes] = [(self.handles[own[0]], tuple(own)) for own in found.values()]
        workers = self._workers[lanes]
        return [(own, call(handle, replace(work, lanes=own))) for handle, own in workers]

    def _run_calls(self, command: Launch, seq: int) -> Calls:
        item = command.item
        names, references = self.batches.inputs_of(item)
        sizes = self.lowered.parts
        work = Work(
            item,
            seq,
            tuple((part, sizes[part].samples) for part in self._makes(command)),
            command.ids,
            tuple(names),
            command.versions,
            wanted=command.wanted,
            contents=self._contents(command),
        )
        if self.plan.graph.stage(item.name).kind is Kind.TRAIN:
            copies = [c for c in self.lowered.copies if c.trainer == item.name]
            if self.lowered.ends(item.slot):
                work = replace(work, save=self.checkpoints.save(item.step + 1, self.steps, copies))
        return self._calls(command.lanes, work, lambda handle, own: handle.run(own, references))

    def _contents(self, command: Launch) -> int:
        """How many batches and weights an item's answers hold: one of each part, or of the stage, or of each model."""
        stage = self.plan.graph.stage(command.item.name)
        if stage.kind is Kind.GENERATE or stage == self.plan.graph.selector:
            task = self.lowered.tasks[command.item.slot]
            return len(task.makes) + task.hands_over
        fed = {copy.model for copy in self.lowered.copies}
        return sum(model in fed for model in stage.models) if stage.kind is Kind.TRAIN else 1

    def _makes(self, command: Launch) -> tuple[int, ...]:
        return self.lowered.tasks[command.item.slot].makes

    def _transfer_calls(self, command: SyncWeights, seq: int) -> Calls:
        work = Work(command.item, seq, versions=((command.model, command.version),))
        parts = self.broadcasts[command.model, command.version]
        return self._calls(command.lanes, work, lambda handle, own: handle.receive(own, parts))
