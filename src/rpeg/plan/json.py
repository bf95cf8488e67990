"""A plan as one JSON file that people can read.

The graph stands in its text form, one line a list entry; `schema` is raised when a reader of an older file must change.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rpeg.cluster import MOST_DEVICES, Cluster
from rpeg.errors import InputError, PlanError
from rpeg.fields import Fields, is_text, is_whole, read_json, shown
from rpeg.plan.assignment import Assignment, Devices, Host
from rpeg.plan.item import ItemKind, Slot
from rpeg.plan.parallelism import Parallelism
from rpeg.plan.plan import Lane, Plan, Turn
from rpeg.text import parse, text
from rpeg.workload import Workload

SCHEMA = 1

_MOST_LISTED = 16

_MOST_SLOTS = 1_000_000
"""More workers on one host than any has: a number beyond is a slip, and each would be a lane."""


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
            f"the plan has schema {shown(value['schema'])}; this version reads {SCHEMA}. Make it anew: rpeg plan"
        )
    try:
        return _plan(Fields("plan", value))
    except InputError as error:
        raise PlanError(f"the plan cannot be read: {error}") from None


def _plan(fields: Fields) -> Plan:
    fields.get("schema")
    order = fields.mapping("order")
    plan = Plan(
        parse("\n".join(fields.texts("graph"))),
        Cluster.from_json(fields.mapping("cluster")),
        Workload.from_json(fields.mapping("workload")),
        tuple(_assignment_from_json(a) for a in fields.items("assignments")),
        tuple(Lane(name, _turns_from_json(name, turns)) for name, turns in order.items()),
        fields.texts("applied"),
    )
    fields.finish()
    return plan


def write_plan(plan: Plan, path: Path) -> None:
    path.write_text(json.dumps(plan_to_json(plan), indent=1) + "\n")


def read_plan(path: Path) -> Plan:
    """Raises PlanError where the file is missing or is not a plan."""
    try:
        value = read_json(path)
    except InputError as error:
        raise PlanError(f"no plan: {error}") from None
    if not isinstance(value, dict):
        raise PlanError(f"{path} holds no plan: a plan is a JSON object")
    return plan_from_json(value)


def digest(plan: Plan) -> str:
    """16 hexadecimal digits that name the plan."""
    canonical = json.dumps(plan_to_json(plan), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def _assignment_to_json(a: Assignment) -> dict[str, Any]:
    block = (
        {"devices": _devices_to_json(a.block.ids)}
        if isinstance(a.block, Devices)
        else {"host": a.block.node, "slots": a.block.slots}
    )
    p = a.parallelism
    return {
        "stage": a.stage,
        **block,
        "parallelism": dataclasses.asdict(p),
        "microbatch": a.microbatch,
        "backend": a.backend,
        "recompute": a.recompute,
        "offload": a.offload,
        **({"bundles": a.bundles} if a.bundles else {}),
    }


def _devices_to_json(ids: tuple[int, ...]) -> list[int] | str:
    """Many in a row as `0-63`; else each."""
    whole = len(ids) > _MOST_LISTED and ids == tuple(range(ids[0], ids[-1] + 1))
    return f"{ids[0]}-{ids[-1]}" if whole else list(ids)


def _devices_from_json(fields: Fields) -> tuple[int, ...]:
    value = fields.get("devices")
    if not isinstance(value, str):
        return fields.wholes("devices")
    first, dash, last = value.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal()) or int(last) >= MOST_DEVICES:
        raise PlanError(
            f"{fields.what} has devices {shown(value)}, a list of numbers or FIRST-LAST is needed"
        )
    return tuple(range(int(first), int(last) + 1))


def _assignment_from_json(value: object) -> Assignment:
    fields = Fields("assignment", value)
    stage = fields.text("stage")
    fields.what = f"assignment of stage {stage}"
    if "devices" in fields.data:
        block: Devices | Host = Devices(_devices_from_json(fields))
    else:
        block = Host(fields.whole("host"), fields.whole("slots", most=_MOST_SLOTS))
    assignment = Assignment(
        stage,
        block,
        _parallelism_from_json(f"parallelism of stage {stage}", fields.get("parallelism")),
        fields.whole("microbatch"),
        fields.text("backend"),
        fields.text("recompute"),
        fields.text("offload"),
        fields.whole("bundles", 0),
    )
    fields.finish()
    return assignment


def _parallelism_from_json(what: str, value: object) -> Parallelism:
    fields = Fields(what, value)
    degrees = {name: fields.whole(name) for name in ("dp", "tp", "pp", "cp", "ep", "zero")}
    shard, vpp = fields.whole("shard", 0), fields.whole("vpp", 1)
    sequence_parallel = fields.flag("sequence_parallel", False)
    fields.finish()
    return Parallelism(**degrees, shard=shard, vpp=vpp, sequence_parallel=sequence_parallel)


def _turn_to_json(turn: Turn) -> list[Any]:
    slot = turn.slot
    return [str(slot.kind), slot.name, slot.part, slot.replica, turn.shift]


def _turns_from_json(lane: str, turns: object) -> tuple[Turn, ...]:
    if not isinstance(turns, list):
        raise PlanError(f"lane {lane} has the order {shown(turns)}, a list of turns is needed")
    return tuple(_turn_from_json(lane, turn) for turn in turns)


def _turn_from_json(lane: str, value: Any) -> Turn:
    match value:
        case [kind, name, part, replica, shift] if (
            kind in tuple(ItemKind) and is_text(name) and all(map(is_whole, (part, replica, shift)))
        ):
            return Turn(Slot(ItemKind(kind), name, part, replica), shift)
    raise PlanError(f"lane {lane} has the turn {shown(value)}, [kind, name, part, replica, shift] is needed")
