"""A plan as one JSON file that people can read.

The graph stands in its text form, one line a list entry; `schema` is raised when a reader of an older file must change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpeg.cluster import Cluster
from rpeg.errors import PlanError
from rpeg.plan.assignment import Assignment, Devices, Host
from rpeg.plan.item import ItemKind, Slot
from rpeg.plan.parallelism import Parallelism
from rpeg.plan.plan import Lane, Plan, Turn
from rpeg.text import parse, text
from rpeg.workload import Workload

SCHEMA = 1


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """JSON-ready; `plan_from_json` gives back an equal plan."""
    return {
        "schema": SCHEMA,
        "graph": text(plan.graph).splitlines(),
        "applied": list(plan.applied),
        "cluster": plan.cluster.to_json(),
        "workload": plan.workload.to_json(),
        "assignments": [_assignment_to_json(a) for a in plan.assignments],
        "order": {lane.name: [_turn_to_json(turn) for turn in lane.turns] for lane in plan.order},
    }


def plan_from_json(value: Mapping[str, Any]) -> Plan:
    """Raises PlanError where the value is not a plan of this schema."""
    if "schema" not in value:
        raise PlanError("this is not a plan: it has no 'schema'")
    if value["schema"] != SCHEMA:
        raise PlanError(
            f"the plan has schema {value['schema']}; this version reads {SCHEMA}. Make it anew: rpeg plan"
        )
    try:
        return Plan(
            parse("\n".join(value["graph"])),
            Cluster.from_json(value["cluster"]),
            Workload.from_json(value["workload"]),
            tuple(_assignment_from_json(a) for a in value["assignments"]),
            tuple(Lane(name, tuple(map(_turn_from_json, turns))) for name, turns in value["order"].items()),
            tuple(value["applied"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PlanError(f"the plan cannot be read: {type(error).__name__}: {error}") from None


def write_plan(plan: Plan, path: Path) -> None:
    path.write_text(json.dumps(plan_to_json(plan), indent=1) + "\n")


def read_plan(path: Path) -> Plan:
    """Raises PlanError where the file is missing or is not a plan."""
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise PlanError(f"cannot read the plan {path}: {error.strerror}") from None
    except json.JSONDecodeError as error:
        raise PlanError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PlanError(f"{path} holds no plan: a plan is a JSON object")
    return plan_from_json(value)


def digest(plan: Plan) -> str:
    """16 hexadecimal digits that name the plan."""
    canonical = json.dumps(plan_to_json(plan), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def _assignment_to_json(a: Assignment) -> dict[str, Any]:
    block = (
        {"devices": list(a.block.ids)}
        if isinstance(a.block, Devices)
        else {"host": a.block.node, "slots": a.block.slots}
    )
    p = a.parallelism
    return {
        "stage": a.stage,
        **block,
        "parallelism": {"dp": p.dp, "tp": p.tp, "pp": p.pp, "cp": p.cp, "ep": p.ep, "zero": p.zero},
        "microbatch": a.microbatch,
        "backend": a.backend,
        "recompute": a.recompute,
        "offload": a.offload,
    }


def _assignment_from_json(value: dict[str, Any]) -> Assignment:
    rest = dict(value)
    if "devices" in rest:
        block: Devices | Host = Devices(tuple(rest.pop("devices")))
    else:
        block = Host(rest.pop("host"), rest.pop("slots"))
    return Assignment(rest.pop("stage"), block, Parallelism(**rest.pop("parallelism")), **rest)


def _turn_to_json(turn: Turn) -> list[Any]:
    slot = turn.slot
    return [str(slot.kind), slot.name, slot.part, slot.replica, turn.shift]


def _turn_from_json(value: list[Any]) -> Turn:
    kind, name, part, replica, shift = value
    return Turn(Slot(ItemKind(kind), name, part, replica), shift)
