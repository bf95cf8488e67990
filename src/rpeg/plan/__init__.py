"""A plan: which devices run what, how, and in what order."""

from rpeg.plan.arcs import BEGUN
from rpeg.plan.assignment import Assignment, Devices, Host, device_lane, host_lane, ranges
from rpeg.plan.check import check, find_cycle, violations
from rpeg.plan.item import Item, ItemKind, Slot
from rpeg.plan.json import digest, plan_from_json, plan_to_json, read_plan, write_plan
from rpeg.plan.lanes import Cell, Lanes
from rpeg.plan.lowered import Arc, Copy, Lowered, Task, ids_to_generate
from rpeg.plan.lowering import coincide, lower, without_items
from rpeg.plan.members import (
    Members,
    Minibatches,
    Prompts,
    ids_of_members,
    membership,
    prompts_of_part,
    prompts_of_replica,
)
from rpeg.plan.parallelism import Parallelism
from rpeg.plan.parts import BasePart, stream_chunks
from rpeg.plan.plan import Lane, Plan, Turn
from rpeg.plan.residency import awake, side_by_side, together
from rpeg.plan.resting import Rest
from rpeg.plan.steps import lane_items, source_step

__all__ = [
    "BEGUN",
    "Arc",
    "Assignment",
    "BasePart",
    "Cell",
    "Copy",
    "Devices",
    "Host",
    "Item",
    "ItemKind",
    "Lane",
    "Lanes",
    "Lowered",
    "Members",
    "Minibatches",
    "Parallelism",
    "Plan",
    "Prompts",
    "Rest",
    "Slot",
    "Task",
    "Turn",
    "awake",
    "check",
    "coincide",
    "device_lane",
    "digest",
    "find_cycle",
    "host_lane",
    "ids_of_members",
    "ids_to_generate",
    "lane_items",
    "lower",
    "membership",
    "plan_from_json",
    "plan_to_json",
    "prompts_of_part",
    "prompts_of_replica",
    "ranges",
    "read_plan",
    "side_by_side",
    "source_step",
    "stream_chunks",
    "together",
    "violations",
    "without_items",
    "write_plan",
]
