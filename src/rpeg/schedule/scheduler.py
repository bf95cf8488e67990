"""The scheduler: events in, commands out.

A pure state machine without clock, threads, randomness or I/O; the simulator and the runtime drive the same one.
Each lane runs its items in the plan's order and is never overtaken; an item starts when it is next on all its lanes
and everything that it waits for has happened. What has happened is known from events alone, never from predictions.
The slot of a round that turns out not to be needed is passed over when it is next: it takes no time and has no command.

    scheduler = Scheduler(plan, steps=10)
    commands = scheduler.start()
    while not scheduler.done:
        commands = scheduler.on(next_event())
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rpeg.errors import RunError
from rpeg.ir import Kind
from rpeg.plan import (
    Arc,
    Item,
    ItemKind,
    Lowered,
    Plan,
    Task,
    ids_of_members,
    ids_to_generate,
    lane_items,
    lower,
    source_step,
)
from rpeg.schedule.messages import (
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    Kept,
    Launch,
    Offload,
    Produced,
    Rejected,
    Reload,
)
from rpeg.schedule.quota import Quota
from rpeg.schedule.share import share
from rpeg.schedule.versions import Versions


class Scheduler:
    """Decides what starts next.

    steps: run steps first_step … steps - 1, and observers (evaluation) once more at `steps`.
    first_step: where a resumed run goes on; everything before it counts as done and each trained model has version
    `first_step`, and older ones where an exact edge reads them (`Copy.version_before`). seed: of the run; with a step's
    number it says who is in which minibatch.
    """

    def __init__(self, plan: Plan, steps: int, first_step: int = 0, seed: int = 0) -> None:
        self.plan, self.steps, self.first_step, self.seed = plan, steps, first_step, seed
        self.lowered: Lowered = lower(plan.graph, plan.assignments, plan.workload)
        self._every = {slot: task.every for slot, task in self.lowered.tasks.items()}
        self._lanes = {lane.name: lane_items(lane, self.lowered, first_step, steps) for lane in plan.order}
        self._heads: dict[str, Item | None] = {name: next(items, None) for name, items in self._lanes.items()}
        self._finished: set[Item] = set()
        self._passed: set[Item] = set()  # of the finished those that there was no need for
        self._produced: dict[tuple[Item, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._gathered: dict[tuple[tuple[int, ...], int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        # (step, generator) → sample → (base part, length), where something asks for samples by their number
        self._asks_for_members = any(task.members is not None for task in self.lowered.tasks.values())
        self._arrived: dict[tuple[int, str], dict[int, tuple[int, int]]] = {}
        self._running: dict[Item, Task] = {}
        self._versions = Versions(plan.graph, self.lowered, first_step)
        self._quota = Quota(plan.graph, plan.workload)
        self._failed: Failed | None = None
        # (source, part) → items next on a lane that were held back by it: an event looks at no one else.
        self._held_back: dict[tuple[Item, int | None], set[Item]] = {}
        self._rests = {rest.name: rest for rest in self.lowered.rests}
        self._forgot_at = first_step

    @property
    def done(self) -> bool:
        """Whether nothing runs and nothing is left to run."""
        return not self._running and (
            self._failed is not None or all(h is None for h in self._heads.values())
        )

    @property
    def running(self) -> tuple[Item, ...]:
        return tuple(self._running)

    @property
    def published(self) -> Mapping[str, int]:
        """The newest version of each trainable model."""
        return self._versions.published

    def start(self) -> tuple[Command, ...]:
        return self._launch(head for head in self._heads.values() if head is not None)

    def on(self, event: Event) -> tuple[Command, ...]:
        """What may start because of `event`. Raises RunError for an event that cannot be."""
        task = self._running.get(event.item)
        if task is None:
            raise RunError(f"{type(event).__name__} for {event.item}, which is not running")
        if isinstance(event, Failed):
            del self._running[event.item]
            self._failed = self._failed or event
            return (Cancel(self.running, f"{event.item}: {event.error}"),)
        if isinstance(event, Produced):
            self._on_produced(event, task)
            return self._launch(self._held_back.pop((event.item, event.part), ()))
        if isinstance(event, (Rejected, Kept)):
            if not self._quota.selects(event.item):
                raise RunError(f"{event.item} rejects samples, which is not its part")
            return ()
        freed = self._on_finished(event, task)
        return self._launch((*freed, *self._held_back.pop((event.item, None), ())))

    def waiting(self) -> tuple[tuple[Item, str], ...]:
        """(item next on a lane, what it waits for): who waits for whom, for a report of a hang."""
        found: dict[Item, str] = {}
        for lane, head in self._heads.items():
            if head is None or head in self._running:
                continue
            missing = [str(arc.src.at(s)) for arc, s in self._sources(head) if not self._happened(arc, s)]
            busy = [str(i) for i, task in self._running.items() if lane in task.lanes]
            found[head] = "; ".join(missing) or f"lane {lane}: {', '.join(busy) or 'another lane'}"
        return tuple(found.items())

    def ids_of(self, parts: tuple[int, ...], step: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(ids, lengths) of the samples that these base parts hold at a step; of several generators' the first's.

        A round that was not needed holds none.
        """
        if (parts, step) not in self._gathered:
            found: dict[int, int] = {}
            for part in parts:
                base = self.lowered.parts[part]
                item = Item(ItemKind.RUN, base.stage, step, base.item, base.replica)
                got = ((), ()) if item in self._passed else self._produced[item, part]
                new = dict(zip(*got, strict=True))
                if not found.keys().isdisjoint(new):
                    new = {sample: length for sample, length in new.items() if sample not in found}
                found.update(new)
            self._gathered[parts, step] = tuple(found), tuple(found.values())
        return self._gathered[parts, step]

    def _on_produced(self, event: Produced, task: Task) -> None:
        key = (event.item, event.part)
        if event.part not in task.makes or key in self._produced:
            raise RunError(f"{event.item} produced part {event.part}, which it does not owe")
        expected, selects = self.lowered.parts[event.part].samples, self._quota.selects(event.item)
        if selects:
            expected = min(len(event.ids), self._quota.wanted(event.item.step))
            self._quota.accept(event.item.step, len(event.ids))
        if len(event.ids) != expected or len(set(event.ids)) != expected:
            raise RunError(
                f"{event.item} produced {len(set(event.ids))} samples in part {event.part} of {expected}"
            )
        self._produced[key] = (event.ids, event.lengths)
        if not self._asks_for_members:
            return
        arrived = self._arrived.setdefault((event.item.step, event.item.name), {})
        arrived.update((i, (event.part, n)) for i, n in zip(event.ids, event.lengths, strict=True))

    def _on_finished(self, event: Finished, task: Task) -> tuple[Item, ...]:
        """Records the end; returns what is now next on the lanes that it held."""
        if event.item.kind is ItemKind.RUN:
            self._check_all_produced(event.item, task)
            self._versions.on_finished(event.item)
        del self._running[event.item]
        return self._leave(event.item, task)

    def _leave(self, item: Item, task: Task) -> tuple[Item, ...]:
        """What is next on the lanes of an item that is over."""
        self._finished.add(item)
        for lane in task.lanes:
            self._heads[lane] = next(self._lanes[lane], None)
        self._forget(item.step)
        return tuple(head for lane in task.lanes if (head := self._heads[lane]) is not None)

    def _check_all_produced(self, item: Item, task: Task) -> None:
        owed = [part for part in task.makes if (item, part) not in self._produced]
        if owed:
            raise RunError(f"{item} finished and still owes the parts {owed}")

    def _forget(self, step: int) -> None:
        """Drops what no later item can ask for, so that a long run's state stays bounded."""
        if step % 16 or step == self._forgot_at:
            return
        self._forgot_at = step
        oldest = min((h.step for h in self._heads.values() if h is not None), default=step)
        reach = (
            2 + max((a.delay for a in self.lowered.arcs), default=0) + max(self._every.values(), default=1)
        )
        limit = oldest - reach
        self._finished = {i for i in self._finished if i.step >= limit}
        self._passed = {i for i in self._passed if i.step >= limit}
        self._quota.forget(limit)
        self._produced = {key: got for key, got in self._produced.items() if key[0].step >= limit}
        self._arrived = {key: got for key, got in self._arrived.items() if key[0] >= limit}
        self._gathered = {key: got for key, got in self._gathered.items() if key[1] >= limit}

    def _launch(self, candidates: Iterable[Item]) -> tuple[Command, ...]:
        if self._failed is not None:
            return ()
        commands: list[Command] = []
        waiting = deque(dict.fromkeys(candidates))
        while waiting:
            item = waiting.popleft()
            task = self.lowered.tasks[item.slot]
            if item in self._running or any(self._heads[lane] != item for lane in task.lanes):
                continue
            missing = self._missing(item, task)
            for what in missing:
                self._held_back.setdefault(what, set()).add(item)
            if not missing and self._quota.has_no_use_for(item):
                self._passed.add(item)
                waiting.extend((*self._leave(item, task), *self._held_back.pop((item, None), ())))
            elif not missing:
                self._running[item] = task
                commands.append(self._command(item, task))
        return tuple(commands)

    def _missing(self, item: Item, task: Task) -> tuple[tuple[Item, int | None], ...]:
        """Things that an item still waits for; it is looked at again when one of them has happened."""
        late: list[tuple[Item, int | None]] = []
        for arc, step in self._sources(item):
            if self._happened(arc, step):
                continue
            if not arc.if_members:
                return ((arc.src.at(step), arc.part),)
            late.append((arc.src.at(step), arc.part))
        if not late:
            return ()
        members, arrived = self._members(item, task), self._arrivals(item.step, task)
        if all(i in got for got in arrived for i in members):
            parts = {got[i][0] for got in arrived for i in members}
            return tuple(what for what in late if self._holds(what, members, parts))[:1]
        # Whichever part leaves next can bring the last member.
        return tuple(what for what in late if what[1] is not None) or tuple(late)

    def _members(self, item: Item, task: Task) -> tuple[int, ...]:
        assert task.members is not None
        return ids_of_members(task.members, self.plan.workload, self.seed, item.step)

    def _begun_by(self, task: Task, step: int) -> tuple[int, ...]:
        return ids_to_generate(task, self.plan.workload, step)

    def _handed_over(self, item: Item) -> tuple[int, ...]:
        """The samples that the other items of a generator have begun and not finished."""
        others = [task for task in self.lowered.tasks_of(item.name) if task.hands_over]
        begun = {i for task in others for i in self._begun_by(task, item.step)}
        for task in others:
            for part in task.makes:
                begun.difference_update(self._produced[task.slot.at(item.step), part][0])
        return tuple(sorted(begun))

    def _arrivals(self, step: int, task: Task) -> list[Mapping[int, tuple[int, int]]]:
        """What has arrived of each generator that an item takes samples of."""
        generators = dict.fromkeys(self.lowered.parts[part].stage for part in task.covers)
        return [self._arrived.get((step, name), {}) for name in generators]

    def _holds(self, source: tuple[Item, int | None], members: Sequence[int], parts: set[int]) -> bool:
        """Whether an item, or a part of it, holds one of these samples, which have arrived in these base parts."""
        item, part = source
        task = self.lowered.tasks[item.slot]
        if part is not None:
            return part in parts
        if task.members is not None:
            return not set(members).isdisjoint(self._members(item, task))
        return not parts.isdisjoint(task.covers)

    def _sources(self, item: Item) -> Iterator[tuple[Arc, int]]:
        """The arcs into an item with the step of their source; those from before the run are left out."""
        for arc in self.lowered.arcs_into[item.slot]:
            step = source_step(self.lowered.tasks[arc.src], item.step - arc.delay, self.steps)
            if step is not None and step >= self.first_step:
                yield arc, step

    def _happened(self, arc: Arc, step: int) -> bool:
        source = arc.src.at(step)
        return source in self._finished if arc.part is None else (source, arc.part) in self._produced

    def _command(self, item: Item, task: Task) -> Command:
        if item.kind is ItemKind.TRANSFER:
            return self._versions.sync(item, task)
        if item.kind is not ItemKind.RUN:
            rest, move = self._rests[item.name], Reload if item.kind is ItemKind.RELOAD else Offload
            return move(item, task.lanes, rest.stage, rest.what)
        ids: tuple[int, ...] = ()
        if self.plan.graph.stage(item.name).kind is Kind.GENERATE:
            ids = self._handed_over(item) if task.finishes else self._begun_by(task, item.step)
        elif task.covers:
            if task.members is None:
                ids, lengths = self.ids_of(task.covers, item.step)
            else:
                ids = self._members(item, task)
                first = self._arrivals(item.step, task)[0]
                lengths = tuple(first[i][1] for i in ids)
            if task.share[1] > 1:
                ids = share(ids, lengths, task.share[1])[task.share[0]]
        wanted = self._quota.wanted(item.step) if self._quota.selects(item) else 0
        return Launch(item, task.lanes, task.covers, ids, self._versions.read_by(item), wanted)
