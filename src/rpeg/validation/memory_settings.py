"""What rows of `memory` leave to words: layout, dtypes, recomputation, which rank was read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from rpeg.architecture import Architecture, named, names
from rpeg.cost.adapters import Targets
from rpeg.cost.execution import Execution, Offload, Recompute
from rpeg.cost.machine import Machine
from rpeg.cost.precision import Precision
from rpeg.cost.stack import stack
from rpeg.errors import InputError
from rpeg.plan import Parallelism
from rpeg.validation import naming

Record = Mapping[str, Any]

_ACCUMULATES_WHOLE = ("litgpt", "lightning", "accelerate")
"""Frameworks that accumulate gradients in FSDP1's no_sync, which keeps them whole, those of frozen weights too."""

_LORA_RANK = 8  # where a row does not say: adapters weigh next to nothing


@dataclass(frozen=True)
class MemoryJob:
    """What a row describes. inference: a forward pass only. sequences: of one update, each of `length` tokens."""

    architecture: Architecture
    sequences: int
    length: int
    execution: Execution
    machine: Machine
    inference: bool


def job_of(record: Record) -> MemoryJob:
    """A row's job. InputError names a field that is missing or cannot be."""
    if not record.get("seq_len"):
        raise InputError("the record has no 'seq_len'")
    framework = str(record.get("framework") or "")
    kind = naming.kind_of(str(record.get("gpu")))
    architecture = architecture_of(record)
    name = naming.training_stack_of(framework, record)
    software = stack(name, kind.name)
    if dict(record.get("options") or {}).get("attention-backend") == "unfused":
        software = replace(software, kernels=replace(software.kernels, attention="unfused"))
    if any(word in framework.lower() for word in _ACCUMULATES_WHOLE):
        software = replace(software, memory=replace(software.memory, accumulates_whole=True))
    layout = layout_of(record, architecture, name)
    microbatch = microbatch_of(record)
    inference = bool(
        re.search(r"infer|generat", f"{record.get('task') or ''} {record.get('phase') or ''}".lower())
    )
    execution = Execution(
        parallelism=layout,
        precision=precision_of(record, layout.zero),
        microbatch=microbatch,
        recompute=recompute_of(record),
        offload=offload_of(record),
        lora_rank=None if inference else adapter_rank(record, architecture),
        lora_targets=targets_of(record),
    )
    passes = int(record.get("grad_accum") or 0) or _passes(record, layout.dp, microbatch)
    return MemoryJob(
        architecture,
        passes * microbatch * layout.dp,
        int(record["seq_len"]),
        execution,
        Machine(kind, naming.fabric_of(record), software),
        inference,
    )


def _is_inference(record: Record) -> bool:
    words = f"{record.get('task') or ''} {record.get('phase') or ''}".lower()
    return bool(re.search(r"infer|generat", words))


def architecture_of(record: Record) -> Architecture:
    """The row's model. One that leaves out its vocabulary is the known model of just that shape, where there is one.

    Else it has the tokenizer that Megatron's tests train with: GPT-2's 50,257 entries, padded to a multiple of 128.
    """
    model = dict(record.get("model") or {})
    if not model.get("vocab") and model.get("layers"):
        shape = (
            model["layers"],
            model.get("hidden"),
            model.get("heads"),
            model.get("kv_heads"),
            model.get("n_experts"),
        )
        twin = _by_shape().get(shape)
        if twin is not None:
            return named(twin)
        model["vocab"] = 50304
    return naming.architecture_of(model)


@cache
def _by_shape() -> dict[tuple[int | None, ...], str]:
    """Known models by layers, hidden width, heads, kv_heads and experts."""
    out: dict[tuple[int | None, ...], str] = {}
    for name in names():
        a = named(name)
        out[a.layers, a.hidden, a.heads, a.kv_heads, a.experts.count if a.experts else None] = name
    return out


def layout_of(record: Record, architecture: Architecture, stack_name: str) -> Parallelism:
    """Degrees as printed; dp is what is left of the devices. No degrees, several devices: all shard (FSDP).

    Megatron cuts each expert over the tensor-parallel ranks too where expert tensor parallelism is not given.
    """
    degree = {key: int(record.get(key) or 1) for key in ("tp", "pp", "cp", "ep", "vpp")}
    replica = degree["tp"] * degree["pp"] * degree["cp"]
    if stack_name == "megatron" and architecture.experts:
        degree["ep"] *= int(record.get("etp") or degree["tp"])
    dp = int(record.get("dp") or max(1, _devices(record, architecture, degree) // replica))
    stage = record.get("zero_stage")
    zero = int(stage) if stage is not None else _usual_stage(stack_name) * (dp > 1)
    stated = record.get("sequence_parallel")
    along = degree["tp"] > 1 and (bool(stated) if stated is not None else zero == 3)
    return Parallelism(
        dp=dp, zero=zero, shard=naming.shards_of(record, dp, degree["cp"]), sequence_parallel=along, **degree
    )


def _usual_stage(stack_name: str) -> int:
    """ZeRO stage where a row gives none: Megatron and DeepSpeed shard optimizer state, PyTorch's own FSDP all."""
    return 1 if stack_name in ("megatron", "eager") else 3


def _devices(record: Record, architecture: Architecture, degree: Mapping[str, int]) -> int:
    """As printed; else a node for a toy and eight nodes for a model of a billion parameters, or all degrees' least."""
    if record.get("n_gpus"):
        return int(record["n_gpus"])
    nodes = 8 if architecture.parameters() > 1e9 else 1
    dense = degree["tp"] * degree["pp"] * degree["cp"]
    return max(nodes * int(record.get("gpus_per_node") or 8), dense, degree["ep"] * degree["pp"])


def adapter_rank(record: Record, architecture: Architecture) -> int | None:
    """The rank of adapters where words say LoRA or the like, or a small part of the parameters is trained."""
    words = f"{record.get('task') or ''} {record.get('method') or ''}".lower()
    trained = record.get("trainable_params")
    few = isinstance(trained, int | float) and trained < 0.1 * architecture.parameters()
    if not few and not re.search(r"lora|adapter", words):
        return None
    return int(record.get("lora_rank") or record.get("lora_r") or _LORA_RANK)


def targets_of(record: Record) -> Targets:
    """Queries and values, where libraries adapt only these by default and the row counts what is trained; else all."""
    return "attention" if record.get("trainable_params") else "all"


def offload_of(record: Record) -> Offload:
    """What the row's words send to the host: the optimizer, or parameters too."""
    words = str(record.get("offload") or record.get("cpu_offload") or "").lower()
    if not words or words in ("false", "none", "no"):
        return "none"
    return "all" if re.search(r"all|param|true", words) else "optimizer"


def microbatch_of(record: Record) -> int:
    """Sequences of a micro-batch; where only a replica's whole batch is printed, as many as pipeline ranks want."""
    if record.get("micro_batch"):
        return int(record["micro_batch"])
    whole = int(record.get("local_batch") or 1)
    return max(1, whole // max(1, int(record.get("pp") or 1)))


def precision_of(record: Record, zero: int) -> Precision:
    """Dtypes of a row's words, with what its framework keeps beside them.

    FSDP shards float32 parameters, which are their own master copy, and gathers them in 16 bits.
    """
    words = str(record.get("precision") or "").lower()
    precision = naming.precision_of(words, str(record.get("framework") or ""))
    if "bf16-optimizer" in words:  # DeepSpeed's BF16_Optimizer: float32 gradients, master weights and moments
        precision = Precision()
    if zero == 3 and precision.master:
        precision = replace(precision, weights="float32", master=False)
    if dict(record.get("options") or {}).get("grad-reduce-in-bf16"):
        precision = replace(precision, gradients="bfloat16")
    if "8bit" in str(record.get("optimizer") or "").lower().replace("-", ""):
        precision = replace(precision, moments="int8")
    quantised = str(record.get("quantization") or "").lower()
    task = str(record.get("task") or "").lower()
    if "nf4" in quantised or "qlora" in task:
        # bitsandbytes' layers return the dtype of their input, and what is not quantised is float32 there
        weights = "nf4-double" if "dq" in quantised else "nf4"
        precision = replace(precision, weights=weights)
        if not _is_inference(record):
            precision = replace(precision, activations="float32")
    return precision


def recompute_of(record: Record) -> Recompute:
    """none, selective or full as the first word says. FSDP that shards a fine-tuning job recomputes its blocks."""
    words = str(record.get("recompute") or "").lower()
    if words.startswith("full") or words == "true":
        return "full"
    if words.startswith("selective"):
        return "selective"
    tuned = record.get("task") and record.get("zero_stage") is None and int(record.get("n_gpus") or 1) > 1
    return "full" if tuned else "none"


def reported_rank(record: Record, pp: int) -> int | None:
    """The pipeline rank whose memory was read; None: the fullest of all.

    Megatron-LM writes its last rank's; nanotron logs on the first rank of the world.
    """
    if "last rank" in str(record.get("mem_basis") or "").lower():
        return pp - 1
    if "nanotron" in str(record.get("framework") or "").lower():
        return 0
    return None


def _passes(record: Record, dp: int, microbatch: int) -> int:
    total = int(record.get("global_batch") or 0)
    if total:
        return max(1, total // (dp * microbatch))
    return max(2, int(record.get("pp") or 1))  # an update is more than a micro-batch, and fills the pipeline
