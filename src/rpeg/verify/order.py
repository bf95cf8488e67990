"""What must come before: inputs by happens-before in the log, lane order by the log and by the lane's own clock."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rpeg.trace import Entry
from rpeg.verify.evidence import CLOCK_SLACK_SECONDS, Breach, Evidence, Property


def inputs_precede_commands(evidence: Evidence) -> Iterator[Breach]:
    """The event that satisfies each arc was heard before the command of what waits for it."""
    for item, command in evidence.commands.items():
        for arc, source in evidence.sources(item):
            event = evidence.arrival(arc, source)
            what = "" if arc.part is None else f", base part {arc.part},"
            if event is None:
                yield (
                    f"{item} was commanded without {arc.why} of {source}{what} which never came",
                    (command,),
                )
            elif event.seq > command.seq:
                yield (
                    f"{item} was commanded by #{command.seq}, before {arc.why} of {source}{what} came with #{event.seq}",
                    (command, event),
                )


def spans_follow_their_inputs(evidence: Evidence) -> Iterator[Breach]:
    """Where one clock tells both: an item starts after the end of what it waits for."""
    for item, spans in evidence.spans.items():
        for arc, source in evidence.sources(item):
            if arc.part is not None:
                continue
            for span in spans:
                for before in evidence.spans.get(source, ()):
                    gap = span.start_seconds - before.end_seconds
                    if before.worker == span.worker and gap < -CLOCK_SLACK_SECONDS:
                        yield (
                            f"{item} started {-gap:.6f} s before {source}, whose {arc.why} it needs, had ended",
                            (before, span),
                        )


def commands_keep_the_lane_order(evidence: Evidence) -> Iterator[Breach]:
    """The next item of a lane is commanded when the one before it in the plan's order has finished."""
    for turns in evidence.turn_of.values():
        before: Entry | None = None
        for item in turns:
            command = evidence.commands.get(item)
            if command is None:
                continue
            end = evidence.finished.get(before.item) if before is not None else None
            if before is not None and (end is None or end.seq > command.seq):
                yield (
                    f"{item} was commanded before {before.item}, which precedes it on a lane, had finished",
                    (command, end or before),
                )
            before = command


def lanes_keep_the_order(evidence: Evidence) -> Iterator[Breach]:
    """By a lane's own clock, its spans come in the plan's order."""
    for lane, spans in evidence.spans_of_lane.items():
        turns = evidence.turn_of.get(lane, {})
        known = [span for span in spans if span.item in turns]
        for before, after in pairwise(known):
            if turns[after.item] < turns[before.item]:
                yield (
                    f"on {lane} {before.item} ran before {after.item}; the plan has them the other way round",
                    (before, after),
                )


def lanes_run_one_thing_at_a_time(evidence: Evidence) -> Iterator[Breach]:
    for lane, spans in evidence.spans_of_lane.items():
        if not spans:
            continue
        longest = spans[0]
        for span in spans[1:]:
            overlap = longest.end_seconds - span.start_seconds
            if overlap > CLOCK_SLACK_SECONDS:
                yield f"on {lane} {longest.item} and {span.item} overlap by {overlap:.6f} s", (longest, span)
            longest = max(longest, span, key=lambda s: s.end_seconds)


ORDER: tuple[Property, ...] = (
    inputs_precede_commands,
    spans_follow_their_inputs,
    commands_keep_the_lane_order,
    lanes_keep_the_order,
    lanes_run_one_thing_at_a_time,
)
