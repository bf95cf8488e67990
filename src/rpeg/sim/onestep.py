"""Which samples each item of one drawn step works on, where nothing delays it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rpeg.ir import Kind
from rpeg.plan import Arc, ItemKind, Lowered, Plan, Slot, Task, ids_of_members
from rpeg.schedule import share
from rpeg.sim.costs import Batch, Costs
from rpeg.sim.lengths import Draws
from rpeg.sim.migration import generated
from rpeg.sim.selection import judge


@dataclass
class OneStep:
    """Of every slot its batch; of generators their seconds and when each base part leaves, from their start.

    parts: the samples of each base part. members: of slots whose samples are fixed, before replicas share them.
    unused: slots of rounds that there is no need for.
    """

    batches: dict[Slot, Batch] = field(default_factory=dict)
    seconds: dict[Slot, float] = field(default_factory=dict)
    offset_seconds: dict[tuple[Slot, int], float] = field(default_factory=dict)
    parts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    members: dict[Slot, frozenset[int]] = field(default_factory=dict)
    unused: set[Slot] = field(default_factory=set)

    def binds(self, arc: Arc) -> bool:
        """Whether `dst` waits for `src` in this step: an item of fixed members only for what holds one of them."""
        if not arc.if_members:
            return True
        held = (
            self.members.get(arc.src) or self.batches[arc.src].ids
            if arc.part is None
            else self.parts[arc.part]
        )
        return not self.members[arc.dst].isdisjoint(held)


def one_step(plan: Plan, lowered: Lowered, costs: Costs, draws: Draws, step: int) -> OneStep:
    """The batches of a step's items. The order of lanes plays no part; the plan need not have one.

    Where samples are selected, nothing is left over from the step before.
    """
    found = OneStep()
    wanted = _select(plan, lowered, draws, step, found)
    for slot, task in lowered.tasks.items():
        if not _generates(plan, slot):
            continue
        if slot in found.unused:
            found.batches[slot], found.seconds[slot] = Batch(), 0.0
            found.parts.update(dict.fromkeys(task.covers, ()))
            found.offset_seconds.update(((slot, part), 0.0) for part in task.covers)
            continue
        done = generated(plan, lowered, costs, draws, slot.at(step))
        found.batches[slot], found.seconds[slot] = done.batch, done.seconds
        for part, offset, members in done.parts:
            found.offset_seconds[slot, part] = offset
            found.parts[part] = members.ids
    found.parts.update(wanted)
    for slot, task in lowered.tasks.items():
        if slot not in found.batches:
            if task.members is not None:
                ids = ids_of_members(task.members, plan.workload, draws.seed, step)
                found.members[slot] = frozenset(ids)
            else:
                ids = tuple(dict.fromkeys(i for part in task.covers for i in found.parts[part]))
            found.batches[slot] = _share(draws.batch(ids), task)
    return found


def _select(
    plan: Plan, lowered: Lowered, draws: Draws, step: int, found: OneStep
) -> dict[int, tuple[int, ...]]:
    """The samples of each base part that a selector makes; notes the slots of rounds after the quota is filled."""
    selector, w = plan.graph.selector, plan.workload
    if selector is None:
        return {}
    size, lacking = w.round_prompts * w.samples_per_prompt, w.samples
    made: dict[int, tuple[int, ...]] = {}
    for task in sorted(lowered.tasks_of(selector.name), key=lambda task: task.slot.part):
        number = task.slot.part
        if lacking <= 0:
            made.update(dict.fromkeys(task.makes, ()))
            found.unused.update(
                slot
                for slot in lowered.tasks
                if slot.kind is ItemKind.RUN and slot.name in plan.graph.rounds and slot.part == number
            )
            continue
        first = step * w.asked + number * size
        accepted = judge(range(first, first + size), lacking, w, draws.seed).accepted
        made.update(dict.fromkeys(task.makes, accepted))
        lacking -= len(accepted)
    return made


def _generates(plan: Plan, slot: Slot) -> bool:
    return slot.kind is ItemKind.RUN and plan.graph.stage(slot.name).kind is Kind.GENERATE


def _share(batch: Batch, task: Task) -> Batch:
    which, shares = task.share
    if shares == 1:
        return batch
    position = {sample_id: i for i, sample_id in enumerate(batch.ids)}
    return batch.take([position[i] for i in share(batch.ids, batch.response_lengths, shares)[which]])
