"""A plan: which devices run what, how, and in what order."""

from rpeg.plan.assignment import Assignment, Devices, Host, device_lane, host_lane
from rpeg.plan.check import check, find_cycle, violations
from rpeg.plan.item import Item, ItemKind, Slot
from rpeg.plan.json import digest, plan_from_json, plan_to_json, read_plan, write_plan
from rpeg.plan.lowering import Arc, BasePart, Copy, Lowered, Task, coincide, lower, prompts_of_replica
from rpeg.plan.parallelism import Parallelism
from rpeg.plan.plan import Lane, Plan, Turn
from rpeg.plan.steps import lane_items, source_step

__all__ = [
    "Arc",
    "Assignment",
    "BasePart",
    "Copy",
    "Devices",
    "Host",
    "Item",
    "ItemKind",
    "Lane",
    "Lowered",
    "Parallelism",
    "Plan",
    "Slot",
    "Task",
    "Turn",
    "check",
    "coincide",
    "device_lane",
    "digest",
    "find_cycle",
    "host_lane",
    "lane_items",
    "lower",
    "plan_from_json",
    "plan_to_json",
    "prompts_of_replica",
    "read_plan",
    "source_step",
    "violations",
    "write_plan",
]
