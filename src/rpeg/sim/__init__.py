"""The simulator, what it asks of a cost model, and what is read off its traces."""

from rpeg.sim.bounds import Bound, Bounds, busiest_lane, dependencies, lane_seconds, least_work
from rpeg.sim.costs import Batch, Completions, Costs
from rpeg.sim.course import Course, Courses
from rpeg.sim.drawn import DrawnTimes, SteadySteps, drawn_times, mean_times, steady_steps_of
from rpeg.sim.estimate import Estimate, estimate, stage_trees
from rpeg.sim.events import EventGraph, Events, Times, events
from rpeg.sim.facts import Facts
from rpeg.sim.howard import CycleRatio, Link, cycle_ratio
from rpeg.sim.lengths import Draws
from rpeg.sim.memory import DeviceMemory, device_memory, stages_in
from rpeg.sim.order import expected, ordered, slot_shifts
from rpeg.sim.simulate import simulate
from rpeg.sim.stagecosts import Memo, StageCosts
from rpeg.sim.staleness import Staleness, staleness
from rpeg.sim.step import (
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
from rpeg.sim.useful import peak_flops, useful_flops

__all__ = [
    "Batch",
    "Bound",
    "Bounds",
    "Completions",
    "Costs",
    "Course",
    "Courses",
    "CycleRatio",
    "DeviceMemory",
    "DrawnTimes",
    "Draws",
    "Estimate",
    "EventGraph",
    "Events",
    "Facts",
    "Link",
    "Memo",
    "StageCosts",
    "Staleness",
    "SteadySteps",
    "StepTime",
    "Times",
    "busiest_lane",
    "busy_seconds",
    "cycle_ratio",
    "dependencies",
    "device_memory",
    "drain_steps",
    "drawn_times",
    "estimate",
    "events",
    "expected",
    "lane_bound",
    "lane_seconds",
    "least_work",
    "mean_times",
    "occupancy",
    "ordered",
    "peak_flops",
    "simulate",
    "slot_shifts",
    "stage_seconds",
    "stage_trees",
    "stages_in",
    "staleness",
    "steady_steps",
    "steady_steps_of",
    "step_seconds",
    "step_time",
    "useful_flops",
]
