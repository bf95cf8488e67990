"""The simulator, what it asks of a cost model, and what is read off its traces."""

from rpeg.sim.costs import Batch, Completions, Costs
from rpeg.sim.order import expected, ordered, slot_shifts
from rpeg.sim.simulate import simulate
from rpeg.sim.step import (
    Bound,
    StepTime,
    busy_seconds,
    lane_bound,
    occupancy,
    stage_seconds,
    step_seconds,
    step_time,
)

__all__ = [
    "Batch",
    "Bound",
    "Completions",
    "Costs",
    "StepTime",
    "busy_seconds",
    "expected",
    "lane_bound",
    "occupancy",
    "ordered",
    "simulate",
    "slot_shifts",
    "stage_seconds",
    "step_seconds",
    "step_time",
]
