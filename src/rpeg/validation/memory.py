"""Records of `memory`: what a published row describes, predicted by `train_memory` and `infer_memory`.

Text fields are read by rules on words; no rule knows a source or a record. What a row leaves open is what its
framework does by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rpeg.cost.memory import Footprint, Phase, generate_memory, train_memory
from rpeg.cost.sequences import Sequences
from rpeg.errors import InputError
from rpeg.units import GIB, MIB
from rpeg.validation import memory_settings as settings
from rpeg.validation.outcome import Outcome

Record = Mapping[str, Any]


def predict(record: Record) -> Outcome:
    """The outcome of one row; what it describes and cannot be expressed is named in the outcome's reason."""
    status = record.get("status")
    outcome = Outcome(
        str(record.get("id", "")),
        str(record.get("source", "")),
        "memory",
        setting_of(record),
        measured_bytes(record),
        unit="B",
        core=bool(record.get("core")),
        suspect=bool(record.get("suspect")),
        fits=status not in ("oom", "crashed_or_oom"),
        confirmed=status != "crashed_or_oom",
    )
    try:
        footprint, fullest, capacity = footprints(record)
    except InputError as error:
        return replace(outcome, reason=str(error))
    size = reported_bytes(footprint, str(record.get("mem_basis") or ""), capacity)
    return replace(outcome, predicted=size, predicted_fits=fullest.fits(capacity))


def footprints(record: Record) -> tuple[Footprint, Footprint, float]:
    """The footprint of the rank that the row reports, that of the fullest rank, and the card's bytes.

    Only of phases that the row's run has: one that trains publishes no weights.
    """
    job = settings.job_of(record)
    capacity = float(job.machine.kind.usable_memory_bytes)
    if job.inference:
        generated = _generating(job)
        return generated, generated, capacity
    sequences = Sequences.equal(job.sequences, job.length)
    rank = settings.reported_rank(record, job.execution.parallelism.pp)
    fullest = _training(train_memory(job.architecture, sequences, job.execution, job.machine))
    if rank is None or rank == fullest.rank:
        return fullest, fullest, capacity
    one = train_memory(job.architecture, sequences, job.execution, job.machine, rank=rank)
    return _training(one), fullest, capacity


def _training(footprint: Footprint) -> Footprint:
    return _only(footprint, "load", "update", "optimizer")


def _generating(job: settings.MemoryJob) -> Footprint:
    rows = job.execution.microbatch
    footprint = generate_memory(
        job.architecture,
        job.execution,
        job.machine,
        rows=rows,
        context=job.length,
        prefill_tokens=rows * job.length,
    )
    return _only(footprint, "generate")


def _only(footprint: Footprint, *names: Phase) -> Footprint:
    return replace(footprint, phases=tuple(phase for phase in footprint.phases if phase.phase in names))


def reported_bytes(footprint: Footprint, basis: str, capacity_bytes: float) -> float:
    """What the row's gauge shows: tensors, what the allocator reserved, or all that nvidia-smi sees.

    Where a row does not say which, it is read as reserved: what frameworks log when they print one number.
    """
    words = basis.lower()
    if "nvidia-smi" in words:
        process = max(phase.pool_bytes("process") for phase in footprint.phases)
        return footprint.reserved_bytes(capacity_bytes) + process
    if "allocated" in words and "reserved" not in words:
        return max(phase.allocated_bytes for phase in footprint.phases)
    return footprint.reserved_bytes(capacity_bytes)


def measured_bytes(record: Record) -> float | None:
    """The row's figure in bytes; None where it has none. "GB" is what the framework's own log divides by."""
    measured = record.get("measured") or {}
    value = measured.get("peak_mem")
    if value is None:
        return None
    return float(value) * _unit_bytes(str(measured.get("unit") or ""), str(record.get("framework") or ""))


def _unit_bytes(unit: str, framework: str) -> float:
    """LitGPT prints max_memory_allocated / 1e9; torch's other users and nvidia-smi's readers divide by 2**30."""
    words = unit.lower()
    if words.startswith("bytes"):
        return 1.0
    if words.startswith(("mib", "mb")):
        return float(MIB)
    if words.startswith("gib"):
        return float(GIB)
    return 1e9 if "litgpt" in framework.lower() else float(GIB)


def setting_of(record: Record) -> str:
    """The row in a few words."""
    model = record.get("model") or {}
    degrees = " ".join(f"{key}{record[key]}" for key in ("dp", "tp", "pp", "cp", "ep") if record.get(key))
    return (
        f"{model.get('name', '?')} {record.get('task') or ''} on {record.get('n_gpus') or '?'} ×"
        f" {record.get('gpu')}, {degrees} micro-batch {record.get('micro_batch')} × {record.get('seq_len')}"
    )
