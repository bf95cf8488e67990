"""What rows of `memory` leave to words: layout, dtypes, recomputation, which rank was read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rpeg.architecture import Architecture
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


def architecture_of(record: Record) -> Architecture:
    """The row's model; a vocabulary that it leaves out is that of the tokenizer that such a model is trained with.

    InputError where the row's options name parts whose shapes it does not give.
    """
    model = dict(record.get("model") or {})
    options = dict(record.get("options") or {})
    if not model.get("vocab") and model.get("layers"):
        model["vocab"] = _vocabulary(model)
    architecture = naming.architecture_of(model)
    if model.get("mla") and architecture.latent is None:
        raise InputError(f"model {architecture.name} has latent attention, its ranks are not given")
    if options.get("moe-latent-size") and not (architecture.experts and architecture.experts.latent):
        raise InputError(
            f"model {architecture.name} has recurrent layers or latent experts whose shapes are not given"
        )
    return architecture


def _vocabulary(model: Mapping[str, Any]) -> int:
    """Mixtral's tokenizer has 32,000 entries; that of Nemotron-4 15B (arXiv:2402.16819, table 1) 256,000; Megatron's
    GPT-2 tokenizer 50,257, padded to a multiple of 128."""
    name = str(model.get("name", "")).lower()
    if "mixtral" in name:
        return 32000
    return 256000 if (model.get("layers"), model.get("hidden")) == (32, 6144) else 50304


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
    zero = int(stage) if stage is not None else 3 * (dp > 1)
    stated = record.get("sequence_parallel")
    along = degree["tp"] > 1 and (bool(stated) if stated is not None else zero == 3)
    return Parallelism(
        dp=dp, zero=zero, shard=_shard(record, dp, degree["cp"]), sequence_parallel=along, **degree
    )


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
    if "8bit" in str(record.get("optimizer") or "").lower().replace("-", ""):
        precision = replace(precision, moments="int8")
    quantised = str(record.get("quantization") or "").lower()
    task = str(record.get("task") or "").lower()
    if "nf4" in quantised or "qlora" in task:
        # bitsandbytes' layers return the dtype of their input, and what is not quantised is float32 there
        weights = "nf4-double" if "dq" in quantised else "nf4"
        precision = replace(precision, weights=weights, activations="float32")
    return precision


def recompute_of(record: Record) -> Recompute:
    """none, selective or full as the first word says. FSDP that shards a fine-tuning job recomputes its blocks."""
    words = str(record.get("recompute") or "").lower()
    if words.startswith("full") or words == "true":
        return "full"
    if words.startswith("selective"):
        return "selective"
    sharded = record.get("zero_stage") is None and int(record.get("n_gpus") or 1) > 1
    return "full" if sharded else "none"


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


def _shard(record: Record, dp: int, cp: int) -> int:
    group = record.get("fsdp_group") or record.get("zero1_group")
    if not isinstance(group, int):
        return 0
    shard = max(1, group // cp)
    return shard if shard < dp and dp % shard == 0 else 0
