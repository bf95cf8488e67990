"""Which kind of measurement a record is: decided by the fields that it has, never by its file or source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpeg.validation.outcome import Kind

Record = Mapping[str, Any]


def kind_of_record(record: Record) -> Kind | None:
    """The kind whose reader takes the record; None where no reader does, and `described` says what it is."""
    if _is_weight_sync(record):
        return "weightsync"
    if "mem_basis" in record or "peak_mem" in _object(record, "measured"):
        return "memory"
    if "mode" in record and "isl" in record:
        return _inference(record)
    if "system" in _object(record, "setting"):
        return "real"
    if _is_rl(record):
        return "rl"
    if {"target", "seq_len", "global_batch"} & record.keys():
        return "train"
    return None


def described(record: Record) -> str:
    """What a record of no kind is, in a few words for a count of such records."""
    if "cases" in record and "meta" in record:
        return f"numeric cases ({len(record['cases'])} in a file): checked by tests, no times to predict"
    if isinstance(record.get("kind"), str):
        return f"'{record['kind']}': no time, memory or rate that the model predicts"
    return "unknown: no fields of any kind of record (see `rpeg validate --help`)"


def did_not_run(record: Record) -> bool:
    """The record says that its setting failed, for lack of memory or perhaps another reason."""
    return (
        record.get("status") in ("oom", "crashed_or_oom") or _object(record, "measured").get("failed") is True
    )


def is_confirmed(record: Record) -> bool:
    """What did not run failed for lack of memory, and not perhaps for another reason."""
    return record.get("status") != "crashed_or_oom"


def _is_weight_sync(record: Record) -> bool:
    return record.get("kind") == "weight_sync" or "mechanism" in record


def _inference(record: Record) -> Kind:
    """A closed loop keeps a number of requests in flight; a static batch starts and ends together."""
    mode = str(record["mode"]).lower()
    return (
        "infer_loop" if "concurrency" in record or "closed" in mode or "serving" in mode else "infer_static"
    )


def _is_rl(record: Record) -> bool:
    """Whole steps: `rl_step…` records, logs of steps, and rows with an algorithm and no training batch alone."""
    kind = str(record.get("kind", ""))
    if kind.startswith(("rl_step", "rlhf", "step_log")):
        return True
    times = _object(record, "metrics").keys() | _object(record, "measured").keys()
    return bool({"step_s", "step_time_s"} & times) and not {"target", "seq_len"} & record.keys()


def _object(record: Record, key: str) -> Mapping[str, Any]:
    value = record.get(key)
    return value if isinstance(value, Mapping) else {}
