"""The driver's log is whole, and tells of the plan's items and no others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rpeg.plan import Item, ItemKind
from rpeg.trace import Entry, What
from rpeg.verify.evidence import CLOCK_SLACK_SECONDS, Breach, Evidence, Property

_COMMANDS = {
    ItemKind.RUN: What.LAUNCH,
    ItemKind.TRANSFER: What.SYNC,
    ItemKind.RELOAD: What.RELOAD,
    ItemKind.OFFLOAD: What.OFFLOAD,
}


def log_has_no_gaps(evidence: Evidence) -> Iterator[Breach]:
    entries = evidence.trace.entries
    if entries and entries[0].seq not in (0, 1):
        yield f"the log begins with #{entries[0].seq}; the first entries are missing", (entries[0],)
    for before, after in pairwise(entries):
        if after.seq != before.seq + 1:
            yield f"#{before.seq} is followed by #{after.seq}, not by #{before.seq + 1}", (before, after)


def driver_clock_ascends(evidence: Evidence) -> Iterator[Breach]:
    entries = evidence.trace.entries
    for before, after in pairwise(entries):
        if not after.seconds >= before.seconds - CLOCK_SLACK_SECONDS:  # so that no number is caught too
            yield f"#{after.seq} is earlier than #{before.seq} on the driver's own clock", (before, after)


def events_follow_commands(evidence: Evidence) -> Iterator[Breach]:
    """An event tells of an item that was commanded before and has not ended."""
    running: set[Item] = set()
    for entry in evidence.trace.entries:
        if entry.what.begins:
            running.add(entry.item)
        elif not entry.what.is_command:
            if entry.item not in running:
                command = evidence.commands.get(entry.item)
                late = command is not None and command.seq < entry.seq
                why = "has ended before" if late else "was not commanded before"
                yield f"#{entry.seq} tells of {entry.item}, which {why}", _present(entry, command)
            if entry.what in (What.FINISHED, What.FAILED):
                running.discard(entry.item)


def items_run_once(evidence: Evidence) -> Iterator[Breach]:
    seen: dict[tuple[Item, str, int | None, str], Entry] = {}
    for entry in evidence.trace.entries:
        if entry.what is What.CANCEL:
            continue
        what = "command" if entry.what.is_command else str(entry.what)
        first = seen.setdefault((entry.item, what, entry.part, entry.why), entry)
        if first is not entry:
            word = "commanded" if what == "command" else what
            yield f"{entry.item} is {word} twice: #{first.seq} and #{entry.seq}", (first, entry)


def items_are_the_plans(evidence: Evidence) -> Iterator[Breach]:
    trace = evidence.trace
    for item, entry in evidence.commands.items():
        task = evidence.task(item)
        wanted = _COMMANDS[item.kind]
        if task is None:
            yield f"{item} is commanded, and the plan has no such item", (entry,)
        elif not trace.first_step <= item.step <= trace.steps or not task.fires(item.step, trace.steps):
            yield (
                f"{item} is commanded, and the plan does not run it at step {item.step} "
                f"(steps {trace.first_step} to {trace.steps - 1}, every {task.every})",
                (entry,),
            )
        elif entry.what is not wanted:
            yield f"{item} is commanded by {entry.what}, not by {wanted}", (entry,)


def every_item_ran(evidence: Evidence) -> Iterator[Breach]:
    """In a stretch that came to its end, all that the plan demands was commanded and has finished."""
    if not evidence.trace.complete:
        return
    for item in evidence.demanded:
        command = evidence.commands.get(item)
        if command is None:
            yield f"{item} was never commanded", (item,)
        elif item not in evidence.finished:
            yield f"{item} was commanded by #{command.seq} and never finished", (command,)
    for entry in evidence.trace.entries:
        if entry.what in (What.FAILED, What.CANCEL):
            yield f"#{entry.seq} says {entry.what} in a run that is said to be complete", (entry,)


def every_part_left(evidence: Evidence) -> Iterator[Breach]:
    """A generator or selector that finished has produced each base part that it owes, and no other."""
    produced: dict[Item, dict[int, Entry]] = {}
    for (item, part), entry in evidence.produced.items():
        produced.setdefault(item, {})[-1 if part is None else part] = entry
    for item in evidence.finished.keys() | produced.keys():
        task = evidence.task(item)
        owed = set(task.makes) if task is not None else set()
        left = produced.get(item, {})
        for part in sorted(left.keys() - owed):
            yield f"{item} produced base part {part}, which it does not owe", (left[part],)
        if item in evidence.finished:
            for part in sorted(owed - left.keys()):
                yield f"{item} finished without base part {part}", (evidence.finished[item],)


def _present(*entries: Entry | None) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if entry is not None)


LOG: tuple[Property, ...] = (
    log_has_no_gaps,
    driver_clock_ascends,
    events_follow_commands,
    items_run_once,
    items_are_the_plans,
    every_item_ran,
    every_part_left,
)
