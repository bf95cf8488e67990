"""Records of inference: static batches, first tokens, and serving at fixed concurrency.

A row's layout, dtypes and engine come from its fields; `serving_labels` says how published labels name layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rpeg.architecture import Architecture
from rpeg.cluster import DeviceKind
from rpeg.cost import Execution, Machine, Precision, stack
from rpeg.cost.generating import Policy, generate_stage, serve
from rpeg.errors import InputError
from rpeg.validation.naming import architecture_of, fabric_of, kind_of, serving_stack_of
from rpeg.validation.outcome import Outcome
from rpeg.validation.serving_labels import degrees, schedules_ahead

Record = Mapping[str, Any]

# Families whose published 8-bit checkpoints have a scale for each block of weights (Qwen/Qwen3-32B-FP8, and all with
# experts); others have one a tensor (nvidia/Llama-3.1-70B-Instruct-FP8).
_BLOCK_SCALED = ("qwen3",)
_BLOCK = {"float8": "float8-block"}

# Engines that take the longest sequence from the model's config; others run whatever length they are built for.
_MIND_CONTEXT = ("vllm", "sglang")

# Engines whose static batches of 2023 and early 2024 sum over ranks by NCCL: their own all-reduce had to be asked for
# (NVIDIA/TensorRT-LLM, tensorrt_llm/plugin/plugin.py: use_custom_all_reduce was False by default).
_SUM_BY_NCCL = ("tensorrt-llm",)

# Published serving runs leave the engine all of the card but what it needs to start.
_TUNED_MEMORY_SHARE = 0.96

_DTYPES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
    "fp8_block": "float8",
    "nvfp4": "float4",
    "mxfp4": "float4",
    "int4_wo": "int4",
}


def predict(record: Record) -> Outcome:
    """The outcome of one row; InputError names what cannot be expressed."""
    loop = "concurrency" in record
    architecture = architecture_of(record["model"])
    kind = kind_of(str(record["gpu"]))
    name = serving_stack_of(str(record["engine"]))
    _fits_context(record, architecture, name)
    engine = stack(name, kind.name)
    if not loop and name in _SUM_BY_NCCL:
        engine = replace(engine, name="")
    machine = Machine(kind, fabric_of(record), engine)
    parallelism = degrees(record)
    architecture = _with_whole_ranks(architecture, parallelism.ep)
    execution = Execution(
        parallelism=parallelism, precision=_precision(record, architecture, kind), graphs=True
    )
    one = _loop if loop else _static
    return one(record, architecture, execution, machine)


def _fits_context(record: Record, architecture: Architecture, engine: str) -> None:
    """What an engine that minds the model's positions was asked beyond them it did not generate."""
    tokens = int(record["isl"]) + int(record["osl"])
    if engine in _MIND_CONTEXT and tokens > architecture.context:
        raise InputError(
            f"{architecture.name}: {record['isl']} + {record['osl']} tokens are more than its context of"
            f" {architecture.context}: engines refuse or cut such requests"
        )


def _loop(record: Record, architecture: Architecture, execution: Execution, machine: Machine) -> Outcome:
    """Time per output token of one replica with all its requests."""
    served = serve(
        architecture,
        int(record["concurrency"]),
        int(record["isl"]),
        int(record["osl"]),
        execution,
        machine,
        Policy(memory_share=_TUNED_MEMORY_SHARE, overlapped=schedules_ahead(str(record["engine"]))),
    )
    measured = record["measured"].get("tpot_ms")
    return replace(
        _outcome(record, "infer_loop"),
        measured=None if measured is None else float(measured) / 1e3,
        predicted=served.token_seconds,
        cost=served.cost,
        reason="" if measured is not None else "no time per output token",
    )


def _static(record: Record, architecture: Architecture, execution: Execution, machine: Machine) -> Outcome:
    """Seconds from the start of a batch until its last token (its first, where only that is measured)."""
    batch, response = int(record["batch"]), int(record["osl"])
    prompts = np.full(batch, int(record["isl"]))
    done = generate_stage(
        architecture,
        prompts,
        np.full(batch, response),
        execution,
        machine,
        policy=Policy(max_rows=max(batch, 1), overlapped=False),
    )
    measured = _seconds(record["measured"], batch * response)
    return replace(
        _outcome(record, "infer_static"),
        measured=measured,
        predicted=done.seconds,
        cost=done.cost,
        reason="" if measured is not None else "neither a latency nor a rate of output tokens",
    )


def _seconds(measured: Mapping[str, Any], tokens: int) -> float | None:
    """A latency as it is given, or what a rate of output tokens makes of the batch."""
    if measured.get("latency_s"):
        return float(measured["latency_s"])
    if measured.get("ttft_ms"):
        return float(measured["ttft_ms"]) / 1e3
    if measured.get("output_tokens_per_s"):
        return tokens / float(measured["output_tokens_per_s"])
    return None


def _outcome(record: Record, kind: Any) -> Outcome:
    parts = (
        record["model"].get("name"),
        record["gpu"],
        record["engine"],
        f"tp{record.get('tp')} pp{record.get('pp')} ep{record.get('ep')} dp{record.get('attention_dp') or 1}",
        record.get("weight_precision") or "",
        f"batch {record.get('concurrency', record.get('batch'))}, {record['isl']} + {record['osl']}",
    )
    return Outcome(
        id=str(record.get("id", "")),
        source=str(record.get("source", "")),
        kind=kind,
        setting=" · ".join(str(part) for part in parts if part),
        measured=None,
        core=bool(record.get("core")),
        suspect=bool(record.get("suspect")),
    )


def _precision(record: Record, architecture: Architecture, kind: DeviceKind) -> Precision:
    """Dtypes of weights, products and cache.

    Four-bit checkpoints of mixtures of experts keep everything but the experts in 16 bits (cards of
    nvidia/DeepSeek-R1-FP4, openai/gpt-oss-120b and moonshotai/Kimi-K2.5). Where the device has no products in a dtype,
    weights are unpacked to 16 bits. kv_precision: where the record is silent, 8 bits beside weights of 8 or 4 bits
    under TensorRT-LLM, whose quantised checkpoints carry scales for it, else 16.
    """
    half = "float16" if record.get("weight_precision") == "fp16" else "bfloat16"
    weights = _DTYPES.get(str(record.get("weight_precision") or "bf16"), half)
    experts = _DTYPES.get(str(record.get("moe_precision") or record.get("weight_precision") or "bf16"), half)
    if architecture.experts is not None and weights in ("float4", "int4"):
        weights = "bfloat16"
    peaks = {name for name, _ in kind.peak_flops}
    compute = weights if weights in peaks else half
    if architecture.experts is not None or architecture.family.startswith(_BLOCK_SCALED):
        compute, experts = (_BLOCK.get(each, each) for each in (compute, experts))
    cache = _DTYPES.get(str(record.get("kv_precision")), _cache(record, weights, experts))
    return Precision(compute=compute, weights=weights, cache=cache, experts=experts)


def _cache(record: Record, weights: str, experts: str) -> str:
    narrow = {weights, experts} & {"float8", "float4"}
    return "float8" if narrow and serving_stack_of(str(record["engine"])) == "tensorrt-llm" else "bfloat16"


def _with_whole_ranks(architecture: Architecture, ep: int) -> Architecture:
    """Wide expert parallelism deals copies of busy experts until every rank has as many (DeepSeek's EPLB)."""
    experts = architecture.experts
    if experts is None or experts.count % ep == 0:
        return architecture
    return replace(architecture, experts=replace(experts, count=-(-experts.count // ep) * ep))
