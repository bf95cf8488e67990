"""The pure scheduler that the simulator and the runtime both drive."""

from rpeg.plan import source_step
from rpeg.schedule.log import command_entry, event_entry
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
    SyncWeights,
    Work,
)
from rpeg.schedule.order import list_order
from rpeg.schedule.scheduler import Scheduler
from rpeg.schedule.share import share

__all__ = [
    "Cancel",
    "Command",
    "Event",
    "Failed",
    "Finished",
    "Kept",
    "Launch",
    "Offload",
    "Produced",
    "Rejected",
    "Reload",
    "Scheduler",
    "SyncWeights",
    "Work",
    "command_entry",
    "event_entry",
    "list_order",
    "share",
    "source_step",
]
