"""Parts: which samples an item takes is fixed by what left its generators, by the plan, or by seed and step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rpeg.ir import Kind
from rpeg.plan import Item, ItemKind, Minibatches, Task, ids_of_members, ids_to_generate
from rpeg.trace import Entry, What
from rpeg.verify.evidence import Breach, Evidence, Property
from rpeg.verify.samples import difference, worked_on


def commands_name_the_planned_parts(evidence: Evidence) -> Iterator[Breach]:
    for item, command in evidence.commands.items():
        task = evidence.task(item)
        if task is not None and command.what is What.LAUNCH and command.parts != task.covers:
            planned, named = (", ".join(map(str, parts)) or "none" for parts in (task.covers, command.parts))
            yield f"{item} is planned for the base parts {planned} and commanded for {named}", (command,)


def generators_are_asked_for_their_prompts(evidence: Evidence) -> Iterator[Breach]:
    """Each item for the samples of its prompts; one that finishes what migrates, for what the others have left over."""
    for item, command in evidence.commands.items():
        task = evidence.task(item)
        if task is None or not task.covers or evidence.kind(item) is not Kind.GENERATE:
            continue
        asked, due = Counter(command.ids), Counter(_prompts_of(evidence, task, item.step))
        if asked != due:
            yield f"{item}, as it is commanded, {difference(asked, due)}", (command,)


def parts_hold_what_was_generated(evidence: Evidence) -> Iterator[Breach]:
    """The parts that left a generator are together what it generated, each of the planned size."""
    parts: dict[Item, list[Entry]] = {}
    selector = evidence.trace.plan.graph.selector
    for (item, part), entry in evidence.produced.items():
        if selector is not None and item.name == selector.name:
            continue
        parts.setdefault(item, []).append(entry)
        known = part is not None and part < len(evidence.lowered.parts)
        planned = evidence.lowered.parts[part].samples if part is not None and known else len(entry.ids)
        if len(entry.ids) != planned:
            yield f"base part {part} of {item} holds {len(entry.ids)} samples of {planned}", (entry,)
    for item, entries in parts.items():
        left, made = Counter(i for e in entries for i in e.ids), Counter(worked_on(evidence, item))
        if item in evidence.finished and item in evidence.spans and left != made:
            yield f"what left {item} {difference(left, made)}", (*evidence.spans[item], *entries)


def streamed_parts_are_inherited(evidence: Evidence) -> Iterator[Breach]:
    """What takes a stream as it comes works on what left in its base parts: on all of it, or on a share."""
    for item, command in evidence.commands.items():
        task = evidence.task(item)
        if task is None or not task.covers or task.members is not None:
            continue
        if evidence.kind(item) is Kind.GENERATE:
            continue
        due = _left_in(evidence, task, item.step)
        beyond = sorted(set(command.ids) - due)
        if beyond:
            yield (
                f"{item} is commanded to work on sample {beyond[0]}, which left in no part of its",
                (command,),
            )
        missing = sorted(due - set(command.ids))
        if missing and task.share[1] == 1:
            yield f"{item} is commanded without sample {missing[0]}, which left in a part of its", (command,)


def fixed_parts_hold_their_members(evidence: Evidence) -> Iterator[Breach]:
    """A part of a split stage is commanded to work on the plan's prompts; a minibatch on the members that (seed, step)
    draw, or, where the trace tells no seed, on as many."""
    trace = evidence.trace
    workload = trace.plan.workload
    for item, command in evidence.commands.items():
        task = evidence.task(item)
        if task is None or task.members is None:
            continue
        drawn = isinstance(task.members, Minibatches)
        members = Counter(ids_of_members(task.members, workload, trace.seed or 0, item.step))
        if drawn and (trace.seed is None or len(command.ids) != len(members)):
            if len(command.ids) != len(members):
                yield (
                    f"{item} is commanded to work on {len(command.ids)} samples; its minibatches have {len(members)}",
                    (command,),
                )
        elif beyond := sorted((Counter(command.ids) - members).keys()):
            yield f"{item} is commanded to work on sample {beyond[0]}, which is of another part", (command,)


def _prompts_of(evidence: Evidence, task: Task, step: int) -> set[int]:
    """The samples that a generator's item is to make at a step."""
    workload = evidence.trace.plan.workload
    if not task.finishes:
        return set(ids_to_generate(task, workload, step))
    others = [own for own in evidence.lowered.tasks_of(task.slot.name) if own.hands_over]
    begun = {i for own in others for i in ids_to_generate(own, workload, step)}
    return begun - {i for own in others for i in _left_in(evidence, own, step)}


def _left_in(evidence: Evidence, task: Task, step: int) -> set[int]:
    """The samples that left in the base parts that a task covers."""
    found: set[int] = set()
    for part in task.covers:
        base = evidence.lowered.parts[part]
        entry = evidence.produced.get((Item(ItemKind.RUN, base.stage, step, base.item, base.replica), part))
        found.update(entry.ids if entry is not None else ())
    return found


PARTS: tuple[Property, ...] = (
    commands_name_the_planned_parts,
    generators_are_asked_for_their_prompts,
    parts_hold_what_was_generated,
    streamed_parts_are_inherited,
    fixed_parts_hold_their_members,
)
