"""A process that serves many lanes and does no work: it waits as long as the work would take, and tells what it made."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from rpeg.errors import RunError
from rpeg.ir import Kind
from rpeg.plan import ItemKind, Plan, lower
from rpeg.runtime.failure import GONE, Failure, WorkerFailed
from rpeg.runtime.fake.costs import FakeCosts
from rpeg.runtime.fake.virtual import until
from rpeg.runtime.work import Answer, Done, Part, Verdict, Work
from rpeg.schedule import Event, Kept, Launch, Offload, Produced, Rejected, Reload, SyncWeights
from rpeg.schedule import Work as Command
from rpeg.sim import Course, Courses, Draws
from rpeg.trace import JsonLines, Span, span_file
from rpeg.units import bytes_text


@dataclass(frozen=True)
class Post:
    """A fake process's place in a run.

    seed: of the run. trace: the directory of its stretch. alone: it is a process, which can die by itself.
    """

    name: str
    plan: Plan
    costs: FakeCosts
    seed: int
    trace: Path
    alone: bool = False


class FakeHost:
    """Runs the items of its lanes side by side; of an item on several processes the one of its first lane speaks.

    clock: seconds that spans tell; the event loop's without.
    """

    def __init__(self, post: Post, clock: Callable[[], float] | None = None) -> None:
        self.post, self._clock = post, clock
        plan = post.plan
        self._lowered = lower(plan.graph, plan.assignments, plan.workload)
        self._courses = Courses(plan, post.costs, Draws(plan.workload, post.seed), post.seed)
        self._spans = JsonLines(span_file(post.trace, post.name))
        self._fed = {copy.model for copy in self._lowered.copies}
        self._rests = {rest.name: rest for rest in self._lowered.rests}
        self._sizes = {
            lane: plan.cluster.device(ids[0]).kind for lane, ids in self._lowered.held.devices.items()
        }

    async def answers(self, work: Work) -> AsyncIterator[Answer]:
        loop = asyncio.get_running_loop()
        await until(loop.time() + self.post.costs.dispatch_seconds)
        command, begun = self._command(work), loop.time()
        start = begun if self._clock is None else self._clock()
        speaks = work.lanes[0] == command.lanes[0]
        course = self._courses.of(command)
        await self._strike(work, begun + course.seconds / 2)
        for offset, event in course.events:
            await until(begun + offset)
            if speaks:
                yield _told(event)
        await until(begun + course.seconds)
        end = loop.time() if self._clock is None else self._clock()
        spans = self._courses.spans(command, work.seq, start, end, worker=self.post.name, lanes=work.lanes)
        self._check_memory(spans)
        # The end must be written before it is told: whoever reads the log then finds the span.
        for span in spans:
            self._spans.write(span.to_json())
        yield self._done(command, course) if speaks else Done()

    def close(self) -> None:
        self._spans.close()

    def _command(self, work: Work) -> Command:
        """What the driver was told by the scheduler."""
        item, lanes = work.item, self._lowered.tasks[work.item.slot].lanes
        if item.kind is ItemKind.RUN:
            parts = self._lowered.tasks[item.slot].covers
            return Launch(item, lanes, parts, work.ids, work.versions, work.wanted)
        if item.kind is ItemKind.TRANSFER:
            return SyncWeights(item, lanes, *work.versions[0])
        rest, move = self._rests[item.name], Reload if item.kind is ItemKind.RELOAD else Offload
        return move(item, lanes, rest.stage, rest.what)

    async def _strike(self, work: Work, moment: float) -> None:
        """What is to go wrong with an item, half way."""
        stretch = int(self.post.trace.name.rpartition("-")[2])
        how = self.post.costs.injection.failure(work.item, stretch)
        if how is None:
            return
        await until(moment)
        if how == "hang":
            await asyncio.get_running_loop().create_future()
        if how == "die" and self.post.alone:
            os._exit(1)
        if how == "die":
            raise WorkerFailed(Failure(work.lanes[0], str(work.item), work.item.step, GONE))
        raise RuntimeError("injected")

    def _check_memory(self, spans: list[Span]) -> None:
        for span in spans:
            kind = self._sizes.get(span.lane)
            if kind is not None and 0 < kind.usable_memory_bytes < span.memory_bytes:
                over = span.memory_bytes - kind.usable_memory_bytes
                raise RunError(
                    f"{span.item.name} on {span.lane} ran out of memory: {bytes_text(span.memory_bytes)} held, "
                    f"{over / 2**30:.2f} GiB more than the {bytes_text(kind.usable_memory_bytes)} of a {kind.name}; "
                    "plan it with more devices, more sharding, a smaller microbatch or offload"
                )

    def _done(self, command: Command, course: Course) -> Done:
        """Stand-ins for what real workers pass on; numbers of what a generator made."""
        item = command.item
        if not isinstance(command, Launch):
            return Done()
        stage = self.post.plan.graph.stage(item.name)
        if stage.kind is Kind.GENERATE:
            made = [length for _, event in course.events for length in getattr(event, "lengths", ())]
            left = f"begun by {item}" if self._lowered.tasks[item.slot].hands_over else None
            return Done(left, metrics={"sum/samples": len(made), "sum/response_tokens": sum(made)})
        if stage.kind is Kind.TRAIN:
            published = [m for m in stage.models if m in self._fed] if self._lowered.ends(item.slot) else []
            return Done(published={model: f"{model}@{item.step + 1}" for model in published})
        return Done() if stage == self.post.plan.graph.selector else Done(str(item))


def _told(event: Event) -> Answer:
    if isinstance(event, Produced):
        return Part(event.part, event.ids, event.lengths, f"{event.item}, part {event.part}")
    if isinstance(event, (Rejected, Kept)):
        return Verdict(event.ids, getattr(event, "why", ""), kept=isinstance(event, Kept))
    raise TypeError(f"a worker does not tell {event}")
