"""The simulator, what it asks of a cost model, and what is read off its traces."""

from rpeg.sim.costs import Batch, Completions, Costs
from rpeg.sim.estimate import Estimate, estimate, stage_trees
from rpeg.sim.events import EventGraph, Events, Times, events
from rpeg.sim.facts import Facts
from rpeg.sim.howard import CycleRatio, Link, cycle_ratio
from rpeg.sim.lengths import Draws
from rpeg.sim.memory import DeviceMemory, device_memory, stages_in
from rpeg.sim.order import expected, ordered, slot_shifts
from rpeg.sim.simulate import simulate
from rpeg.sim.stagecosts import Memo, StageCosts
from rpeg.sim.step import (
    Bound,
    StepTime,
    busy_seconds,
    drain_steps,
    lane_bound,
    occupancy,
    stage_seconds,
    steady_steps,
    step_seconds,
    step_time,
)

__all__ = [
    "Batch",
    "Bound",
    "Completions",
    "Costs",
    "CycleRatio",
    "DeviceMemory",
    "Draws",
    "Estimate",
    "EventGraph",
    "Events",
    "Facts",
    "Link",
    "Memo",
    "StageCosts",
    "StepTime",
    "Times",
    "busy_seconds",
    "cycle_ratio",
    "device_memory",
    "drain_steps",
    "estimate",
    "events",
    "expected",
    "lane_bound",
    "occupancy",
    "ordered",
    "simulate",
    "slot_shifts",
    "stage_seconds",
    "stage_trees",
    "stages_in",
    "steady_steps",
    "step_seconds",
    "step_time",
]
