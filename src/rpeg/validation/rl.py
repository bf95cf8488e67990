"""Records of `rl`: whole RL steps, composed of generation, scoring, training and weight transfer.

Rows that name no device, model, mean length or layout are refused with the field that they lack. Of a multi-turn row,
whose environment nobody described, only the part that does not wait for it is predicted, and its setting says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rpeg.cost import Cost
from rpeg.errors import InputError
from rpeg.validation.outcome import Outcome
from rpeg.validation.rl_rows import Logged, flattened, table_row, weights_cost
from rpeg.validation.rl_step import step_cost

Record = Mapping[str, Any]

# Of a step whose other parts wait for an environment: the part that is predicted.
_PART = "mean_weight_sync_s"
_STEP = ("step_time_s", "step_s", "step_s_excl_test_and_save", "step_s_excl_test", "mean_step_s")


def predict(record: Record) -> Outcome:
    """The outcome of one row; what it describes and cannot be expressed is named in the outcome's reason."""
    outcome = Outcome(
        str(record.get("id", "")), str(record.get("source", "")), "rl", _words(record), measured(record)
    )
    try:
        cost = _cost(record)
    except InputError as error:
        return replace(outcome, reason=str(error))
    if outcome.measured is None:
        return replace(outcome, reason="no time of one step is given")
    return replace(outcome, predicted=cost.seconds, cost=cost)


def measured(record: Record) -> float | None:
    """Seconds of one step."""
    for figures in (record.get("measured") or {}, record.get("metrics") or {}):
        for key in _STEP:
            if isinstance(figures.get(key), int | float):
                return float(figures[key])
    return float(record["measured"][_PART]) if _is_part(record) else None


def _is_part(record: Record) -> bool:
    return isinstance((record.get("measured") or {}).get(_PART), int | float)


def content(record: Record) -> tuple[Any, ...] | None:
    """What two rows share when they state one measurement, whatever file they stand in; None without a measurement."""
    flat, seconds = flattened(record), measured(record)
    if seconds is None:
        return None
    model = flat.get("model")
    name = str(model.get("name") if isinstance(model, Mapping) else model).rpartition("/")[2]
    gpu = re.match(r"[A-Za-z]+\d+", str(flat.get("gpu")))
    return (
        "rl",
        re.sub(r"[^a-z0-9]", "", name.lower()).removesuffix("instruct"),
        gpu[0] if gpu else "",
        flat.get("gpus") or flat.get("n_gpus"),
        float(flat["avg_seq_len"]) if flat.get("avg_seq_len") else None,
        seconds,
    )


def _cost(record: Record) -> Cost:
    if "metrics" in record:
        return step_cost(Logged(record).step())
    flat = flattened(record)
    if "swe" in str(flat.get("algorithm", "")).lower():
        if _is_part(record):
            return weights_cost(flat)
        raise InputError("turns wait for an environment whose latency is not given")
    return step_cost(table_row(record))


def _words(record: Record) -> str:
    flat = flattened(record)
    model = flat.get("model")
    name = model.get("name") if isinstance(model, Mapping) else model
    kind = flat.get("placement") or flat.get("policy") or ""
    devices = flat.get("gpus") or flat.get("n_gpus") or "?"
    part = ", weight transfer alone" if _is_part(record) else ""
    return f"{flat.get('algorithm', '?')} {name} on {devices} × {flat.get('gpu')} {kind}{part}"
