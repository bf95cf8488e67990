"""Records of `weightsync`: how long new weights take from the trainer to the engines.

Three forms of record are read: those with a `mechanism`, those of whole RL steps with a `setting`, and those with
`metrics`. A row that only compares two systems, or leaves out the model, the devices or where they stand, is refused
with the field that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rpeg.cost import Cost, Machine, stack
from rpeg.cost.network import Held, Strategy, named_tensors, sync, transfer
from rpeg.errors import InputError
from rpeg.plan import Parallelism
from rpeg.validation.naming import architecture_of, fabric_of, kind_of, serving_stack_of
from rpeg.validation.outcome import Outcome

Record = Mapping[str, Any]

_SECONDS = (
    "update_broadcast_s",
    "time_s",
    "nccl_full_broadcast_s",
    "weight_sync_s",
    "sync_s_without_ckpt_engine",
)
_GIB = 2**30


def predict(record: Record) -> Outcome:
    """The outcome of one row; what it describes and cannot be expressed is named in the outcome's reason."""
    flat = flattened(record)
    measured, model = _measured(record), flat["model"]
    setting = f"{model}, {flat.get('gpu', 'unnamed device')}: {_words(flat)}"
    outcome = Outcome(
        str(record.get("id", "")), str(record.get("source", "")), "weightsync", setting, measured
    )
    try:
        cost, least = _cost(flat)
    except InputError as error:
        return _without(outcome, str(error))
    if measured is None:
        return _without(outcome, "no seconds of one transfer of all weights are given")
    if measured < least:
        says = f"{measured:g} s is less than the {least:.2g} s that a receiver's weights take over its fastest link"
        return _without(outcome, f"{says}: not a whole transfer")
    return Outcome(**{**vars(outcome), "predicted": cost.seconds, "cost": cost})


def flattened(record: Record) -> dict[str, Any]:
    """The fields of a record and of its setting on one level, device counts under one name."""
    flat = {**record, **(record.get("setting") or {})}
    flat["n_gpus"] = flat.get("n_gpus") or flat.get("gpus")
    model = flat.get("model")
    flat["model"] = str(model.get("name") if isinstance(model, Mapping) else model or "")
    flat["infer_tp"] = flat.get("infer_tp") or flat.get("tp")
    return flat


def content(record: Record) -> tuple[Any, ...] | None:
    """What two rows share when they state one measurement, whatever file they stand in; None without a measurement."""
    flat, seconds = flattened(record), _measured(record)
    if seconds is None:
        return None
    name = re.sub(r"[^a-z0-9]", "", re.split(r"[\s(]", flat["model"])[0].lower())
    return ("weightsync", name.removesuffix("instruct2507").removesuffix("instruct"), seconds)


def _cost(flat: Record) -> tuple[Cost, float]:
    """The transfer, and the seconds that a receiver's own weights take at the full rate of its fastest link."""
    kind = kind_of(_device(str(flat.get("gpu") or "")))
    trainers, servers, tp, strategy = _placement(flat)
    architecture = architecture_of({"name": _model(flat["model"])})
    machine = Machine(
        kind,
        fabric_of({**flat, "gpu": kind.name, "n_gpus": trainers + servers}),
        stack(_engine(flat), kind.name),
    )
    dtype = "float8" if "fp8" in f"{flat.get('weight_precision')} {flat.get('model')}".lower() else "bfloat16"
    first = 0 if strategy == "staged" else trainers
    plan = transfer(
        architecture,
        Held(Parallelism(dp=trainers, zero=3), 0, dtype if strategy == "staged" else "bfloat16"),
        Held(Parallelism(dp=servers // tp, tp=tp), first, dtype),
        machine.fabric,
    )
    bucket = float((flat.get("measured") or {}).get("bucket_gib") or 2.0) * _GIB
    tensors = named_tensors(architecture, scaled=dtype == "float8" and strategy == "staged")
    least = plan.receive_needed_bytes / machine.fabric.levels[0][0].bandwidth_bytes_per_second
    return sync(
        plan, machine, strategy, tensors=tensors, bucket_bytes=bucket, one_by_one=_one_by_one(flat)
    ), least


def _one_by_one(flat: Record) -> bool:
    """verl without its checkpoint engine broadcasts and loads each tensor by itself (volcengine/verl at dca8d29a,
    recipe/one_step_off_policy/fsdp_workers.py, sync_rollout_weights)."""
    plain = "->rollouter" in _words(flat) and "checkpoint-engine" not in _words(flat)
    return plain or "sync_s_without_ckpt_engine" in (flat.get("metrics") or {})


def _device(gpu: str) -> str:
    """The device that a description of nodes names; as it stands where it names none. InputError for nothing."""
    if not gpu:
        raise InputError("'gpu' is not given")
    found = re.search(r"\b(GB|GH|[ABHL])\d+\w*", re.split(r"/", gpu)[0])
    return found[0] if found else gpu


def _placement(flat: Record) -> tuple[int, int, int, Strategy]:
    """Trainers, receivers, their tensor parallelism, and the way that the mechanism takes."""
    words = _words(flat)
    if flat.get("infer_tp") and flat.get("n_gpus"):
        return int(flat["n_gpus"]), int(flat["n_gpus"]), int(flat["infer_tp"]), "staged"
    if flat.get("trainer_ranks"):
        servers, staged = int(flat["rollout_ranks"]), "checkpoint-engine" in words
        return (
            (servers, servers, 1, "staged")
            if staged
            else (int(flat["trainer_ranks"]), servers, 1, "broadcast")
        )
    found = re.search(r"trainer (\d+) / rollout (\d+)", words)
    if found:
        return int(found[1]), int(found[2]), 1, "broadcast"
    found = re.search(r"w(?:s=|orld )(\d+).*?(\d+) rollout receivers", words)
    if found:
        return int(found[1]), int(found[2]), 1, "broadcast"
    found = re.search(r"(\d+)\+(\d+) nodes", words)
    if found:
        receivers = 8 * int(found[2])
        tp = re.search(r"gen TP(\d+)", words)
        return 8 * int(found[1]), receivers, int(tp[1]) if tp else 1, "broadcast"
    raise InputError("how many devices train and how many receive is not given")


def _engine(flat: Record) -> str:
    return serving_stack_of(
        str(flat.get("rollout_engine") or flat.get("mechanism") or flat.get("framework") or "")
    )


def _model(name: str) -> str:
    """The model's name without a remark on its dtype."""
    return re.sub(r"\s*\(.*\)$", "", name)


def _words(flat: Record) -> str:
    keys = ("mechanism", "placement", "op", "framework")
    return ", ".join(str(flat[key]) for key in keys if isinstance(flat.get(key), str))


def _measured(record: Record) -> float | None:
    """Seconds of one transfer; the middle where a range is given."""
    for figures in (record.get("measured") or {}, record.get("metrics") or {}):
        for key in _SECONDS:
            value = figures.get(key)
            if isinstance(value, list) and value:
                return sum(map(float, value)) / len(value)
            if isinstance(value, int | float):
                return float(value)
    return None


def _without(outcome: Outcome, reason: str) -> Outcome:
    return Outcome(**{**vars(outcome), "reason": reason})
