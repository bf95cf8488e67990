"""Commands and events as the entries of a driver's log."""

from __future__ import annotations

from rpeg.schedule.messages import Event, Failed, Kept, Offload, Produced, Rejected, Reload, SyncWeights, Work
from rpeg.trace import Entry, What


def command_entry(seq: int, seconds: float, command: Work) -> Entry:
    """What the driver asked for, and when."""
    if isinstance(command, SyncWeights):
        versions = {command.model: command.version}
        return Entry(seq, seconds, What.SYNC, command.item, command.lanes, versions=versions)
    if isinstance(command, (Reload, Offload)):
        what = What.RELOAD if isinstance(command, Reload) else What.OFFLOAD
        return Entry(seq, seconds, what, command.item, command.lanes)
    return Entry(
        seq,
        seconds,
        What.LAUNCH,
        command.item,
        command.lanes,
        parts=command.parts,
        ids=command.ids,
        versions=dict(command.versions),
        wanted=command.wanted,
    )


def event_entry(seq: int, seconds: float, event: Event) -> Entry:
    """What the driver heard, and when."""
    if isinstance(event, Produced):
        return Entry(seq, seconds, What.PRODUCED, event.item, part=event.part, ids=event.ids)
    if isinstance(event, Rejected):
        return Entry(seq, seconds, What.REJECTED, event.item, ids=event.ids, why=event.why)
    if isinstance(event, Kept):
        return Entry(seq, seconds, What.KEPT, event.item, ids=event.ids)
    if isinstance(event, Failed):
        return Entry(seq, seconds, What.FAILED, event.item, error=event.error)
    return Entry(seq, seconds, What.FINISHED, event.item)
