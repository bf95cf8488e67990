"""What a plan is lowered to: the items of a step, the arcs between them, and what both are cut from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rpeg.ir import Freshness
from rpeg.plan.item import ItemKind, Slot
from rpeg.plan.lanes import Lanes
from rpeg.plan.members import Members, Prompts, ids_of_members, prompts_of_replica
from rpeg.plan.parts import BasePart
from rpeg.plan.resting import Rest
from rpeg.workload import Workload


@dataclass(frozen=True, slots=True)
class Copy:
    """Weights of a model held for consumers that cannot share the trainer's.

    name: the edge that its transfers are named by (the first of those it serves).
    """

    name: str
    model: str
    trainer: str
    stages: tuple[str, ...]
    delay: int
    freshness: Freshness

    @property
    def first_step(self) -> int:
        """The first step before which it may receive a version other than the initial one."""
        return self.delay if self.freshness is Freshness.EXACT else 1

    def version_before(self, step: int) -> int:
        """What it holds when a run begins at `step`: of an exact edge what it reads there, whatever the timing; else the
        newest."""
        return max(0, step + 1 - self.delay) if self.freshness is Freshness.EXACT else step


@dataclass(frozen=True, slots=True)
class Task:
    """A slot with what it holds and covers.

    covers: base parts, by number; empty where a stage is not part of the stream.
    share: (which, of how many) shares of what it covers, for the replicas of a whole batch.
    members: of what it covers only these, where they are fixed before anything completes.
    makes: the base parts that leave it, where samples begin at it: of a generator those that it covers.
    hands_over: it leaves its last responses to the item of its stage that finishes them. finishes: it is that item.
    """

    slot: Slot
    lanes: tuple[str, ...]
    every: int = 1
    first_step: int = 0
    observer: bool = False
    covers: tuple[int, ...] = ()
    share: tuple[int, int] = (0, 1)
    members: Members | None = None
    makes: tuple[int, ...] = ()
    hands_over: bool = False
    finishes: bool = False

    def fires(self, step: int, steps: int) -> bool:
        """Whether it runs at `step` of a run of `steps`; observers run once more after the last."""
        if step == steps:
            return self.observer and step >= self.first_step
        return self.first_step <= step < steps and step % self.every == 0


@dataclass(frozen=True, slots=True)
class Arc:
    """`dst` at step t waits for `src` at step t - delay; at `part` of it where that is given, else at its end.

    why: the datum, or `order` for a read that must precede an overwriting and for minibatches one after another.
    if_members: it waits only where `src` (or that part of it) holds a member of `dst`, which is known when all members
    have left their generators.
    """

    src: Slot
    dst: Slot
    delay: int
    why: str
    part: int | None = None
    if_members: bool = False


@dataclass(frozen=True)
class Lowered:
    """The items of a step, the arcs between them, the base parts, the copies of weights and what rests on hosts."""

    tasks: Mapping[Slot, Task]
    arcs: tuple[Arc, ...]
    parts: tuple[BasePart, ...]
    copies: tuple[Copy, ...]
    held: Lanes = field(default_factory=lambda: Lanes({}))
    rests: tuple[Rest, ...] = ()

    @cached_property
    def arcs_into(self) -> Mapping[Slot, tuple[Arc, ...]]:
        into: dict[Slot, list[Arc]] = {slot: [] for slot in self.tasks}
        for arc in self.arcs:
            into[arc.dst].append(arc)
        return {slot: tuple(arcs) for slot, arcs in into.items()}

    @cached_property
    def lanes(self) -> Mapping[str, tuple[Slot, ...]]:
        """The slots that each lane must run."""
        lanes: dict[str, list[Slot]] = {}
        for task in self.tasks.values():
            for lane in task.lanes:
                lanes.setdefault(lane, []).append(task.slot)
        return {lane: tuple(slots) for lane, slots in lanes.items()}

    def tasks_of(self, stage: str) -> tuple[Task, ...]:
        return tuple(t for s, t in self.tasks.items() if s.kind is ItemKind.RUN and s.name == stage)

    @cached_property
    def _last_part(self) -> Mapping[str, int]:
        return {slot.name: slot.part for slot in sorted(self.tasks) if slot.kind is ItemKind.RUN}

    def ends(self, slot: Slot) -> bool:
        """Whether it is the last part of its stage: of a trainer the one that publishes."""
        return slot.kind is ItemKind.RUN and slot.part == self._last_part[slot.name]

    def parts_of(self, stage: str, replica: int) -> tuple[int, ...]:
        """The base parts of one replica of a generator, in the order in which they leave."""
        return tuple(i for i, p in enumerate(self.parts) if p.stage == stage and p.replica == replica)

    def copy_for(self, stage: str, model: str) -> Copy | None:
        """The copy that a stage reads a model from; None where it shares the trainer's or the model is frozen."""
        return next((c for c in self.copies if c.model == model and stage in c.stages), None)


def ids_to_generate(task: Task, workload: Workload, step: int) -> tuple[int, ...]:
    """The samples that a generator's item begins at a step: none for an observer, which has prompts of its own, and for
    one that finishes what others began."""
    if not task.covers or task.finishes:
        return ()
    own = prompts_of_replica(workload.prompts, *task.share)
    members = task.members or Prompts(((own.start, own.stop),))
    return ids_of_members(members, workload, 0, step)
