"""Records of `train`: what a published row describes, predicted by `train_stage`.

Text fields are read by rules on words; no rule knows a source or a record. What a row leaves open is what its
framework does by default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from rpeg.architecture import Architecture
from rpeg.cost import Execution, Machine, Precision, Sequences, stack, train_stage
from rpeg.cost.execution import Recompute
from rpeg.cost.memory import train_memory
from rpeg.errors import InputError
from rpeg.plan import Parallelism
from rpeg.validation import naming
from rpeg.validation.outcome import Outcome

Record = Mapping[str, Any]

_POLICIES: tuple[Recompute, ...] = ("none", "selective", "full")
_SEQUENCE_PARALLEL = ("torchtitan", "fsdp2", "nanotron")
_STATIC_SHAPES = r"token[- ]?drop(?!less)"
_LORA_RANK = 16  # where a row says LoRA and no rank: times hardly depend on it


def predict(record: Record) -> Outcome:
    """The outcome of one row; what it describes and cannot be expressed is named in the outcome's reason."""
    measured = (record.get("target") or {}).get("step_time_s")
    outcome = Outcome(
        str(record.get("id", "")),
        str(record.get("source", "")),
        "train",
        setting_of(record),
        measured,
        core=bool(record.get("core")),
        suspect=bool(record.get("suspect")),
    )
    if measured is None:
        return replace(outcome, reason="the record has no step time")
    try:
        architecture, sequences, execution, machine = job_of(record)
        cost = train_stage(architecture, sequences, execution, machine)
    except InputError as error:
        return replace(outcome, reason=str(error))
    return replace(outcome, predicted=cost.seconds, cost=cost)


def setting_of(record: Record) -> str:
    """The row in a few words."""
    model = record.get("model") or {}
    degrees = " ".join(f"{key}{record[key]}" for key in ("dp", "tp", "pp", "cp", "ep") if record.get(key))
    return (
        f"{model.get('name', '?')} on {record.get('n_gpus')} × {record.get('gpu')}, {degrees}, "
        f"{record.get('global_batch')} × {record.get('seq_len')}"
    )


def job_of(record: Record) -> tuple[Architecture, Sequences, Execution, Machine]:
    """What `train_stage` takes. InputError names a field that is missing or cannot be."""
    for field in ("n_gpus", "seq_len", "global_batch"):
        if not record.get(field):
            raise InputError(f"the record has no '{field}'")
    architecture = naming.architecture_of(record["model"])
    framework = str(record.get("framework") or "")
    kind = naming.kind_of(str(record.get("gpu")))
    name = naming.training_stack_of(framework, record)
    machine = Machine(kind, naming.fabric_of(record), stack(name, kind.name))
    sequences = Sequences.equal(int(record["global_batch"]), int(record["seq_len"]))
    execution = Execution(
        parallelism=layout_of(record, name),
        precision=precision_of(record, name),
        microbatch=int(record.get("micro_batch") or 1),
        graphs=_static(record),
        lora_rank=_adapters(record),
    )
    stated = recompute_of(str(record.get("recompute") or ""))
    if stated:
        return architecture, sequences, replace(execution, recompute=stated), machine
    return architecture, sequences, first_that_fits(architecture, sequences, execution, machine), machine


def _adapters(record: Record) -> int | None:
    """The rank of adapters; None where all is trained."""
    words = f"{record.get('task') or ''} {record.get('method') or ''}".lower()
    if "lora" not in words:
        return None
    return int(record.get("lora_rank") or record.get("lora_r") or _LORA_RANK)


def _static(record: Record) -> bool:
    """Experts with a fixed capacity have static shapes: no launch waits for what the router decided."""
    words = f"{record['model'].get('name', '')} {record.get('notes') or ''}".lower()
    return re.search(_STATIC_SHAPES, words) is not None


def layout_of(record: Record, stack_name: str) -> Parallelism:
    """Degrees as printed; a missing dp is what is left of the devices."""
    degree = {key: int(record.get(key) or 1) for key in ("tp", "pp", "cp", "ep", "vpp")}
    replica = degree["tp"] * degree["pp"] * degree["cp"]
    devices = int(record["n_gpus"])
    if devices % replica:
        raise InputError(f"{devices} devices are no multiple of tp × pp × cp = {replica}")
    dp = devices // replica
    zero = int(record.get("zero_stage") or 0)
    return Parallelism(
        dp=dp,
        zero=zero,
        shard=naming.shards_of(record, dp, degree["cp"]) if zero else 0,
        sequence_parallel=degree["tp"] > 1 and _sequence_parallel(record, stack_name),
        **degree,
    )


def _sequence_parallel(record: Record, stack_name: str) -> bool:
    """As printed; else what frameworks do beside tensor parallelism: on in Megatron-Core and in FSDP2's companions."""
    stated, framework = record.get("sequence_parallel"), str(record.get("framework") or "").lower()
    if stated is not None:
        return bool(stated)
    return stack_name in ("megatron", "compiled") or any(word in framework for word in _SEQUENCE_PARALLEL)


def precision_of(record: Record, stack_name: str) -> Precision:
    """As the words say; gradients that are not said to be accumulated in 32 bits travel as they come from backward."""
    words = str(record.get("precision") or "")
    precision = naming.precision_of(words, str(record.get("framework") or ""))
    if (
        "qlora" in str(record.get("task") or "").lower()
        or "nf4" in str(record.get("quantization") or "").lower()
    ):
        precision = replace(precision, weights="nf4")
    if stack_name == "megatron" or re.search(r"fp32|float32", words):
        return precision
    return replace(precision, communication=precision.activations)


def recompute_of(words: str) -> Recompute | None:
    """none, selective or full as the first word says; None where a row leaves it open."""
    first = re.match(r"(none|selective|full)", words.lower())
    return cast(Recompute, first[1]) if first else None


def first_that_fits(
    architecture: Architecture, sequences: Sequences, execution: Execution, machine: Machine
) -> Execution:
    """What recipes do where nothing is said: they recompute as little as memory allows.

    Tuned layouts (Megatron-Core) are chosen so that nothing is, and compilers (XLA) place what does not fit.
    """
    for policy in _POLICIES if machine.stack.name in ("flash", "eager") else ():
        tried = replace(execution, recompute=policy)
        if train_memory(architecture, sequences, tried, machine).fits(machine.kind.memory_bytes):
            return tried
    return execution
