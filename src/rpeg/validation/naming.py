"""What published records call things, as what the model knows: device kinds, architectures, stacks, dtypes, links.

Rules are tables of words, tried in order; the first whose words all stand in the text decides, and the last is the
default for names never seen. No rule knows a source or a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rpeg.architecture import Architecture, from_shape, named
from rpeg.architecture.shape import FIELDS as SHAPE_FIELDS
from rpeg.cluster import DeviceKind, Fabric, kind_named
from rpeg.cost.precision import FLOAT32, Precision
from rpeg.errors import InputError
from rpeg.fields import shown
from rpeg.validation.links import fabric_of_words

Record = Mapping[str, Any]
Words = tuple[str, ...]

_TRAINING: tuple[tuple[Words, str], ...] = (
    (("megatron-deepspeed",), "eager"),  # layers of 2022: unfused attention, kernels launched one by one
    (("maxtext",), "compiled"),
    (("paxml",), "compiled"),
    (("jax",), "compiled"),
    (("levanter",), "compiled"),
    (("t5x",), "compiled"),
    (("xla",), "compiled"),
    (("automodel",), "flash"),  # eager PyTorch with FSDP2, whatever kernels its layers call
    (("nemo",), "megatron"),
    (("megatron",), "megatron"),
    (("transformerengine",), "megatron"),
    (("mindspeed",), "megatron"),
    (("alpa",), "compiled"),
    (("deepspeed-chat",), "eager"),
    ((), "flash"),  # eager PyTorch with FlashAttention: what most others are
)

# DeepSpeed's and InternEvo's optimizers reduce gradients in the dtype of the weights.
_HALF_GRADIENTS = ("deepspeed", "internevo", "colossal")

# FSDP's mixed precision policy, torch.autocast and MaxText keep float32 parameters and cast them when they are used.
_FLOAT32_WEIGHTS = ("fsdp", "torchtitan", "composer", "jax", "levanter", "amp", "-mixed")

_FROZEN = (
    (r"nf4|int4|4-?bit|qlora", "int4"),
    (r"int8|\b8-?bit", "float8"),
)  # words, as many bits as weights have

# Some word of a dtype or of a recipe; words that tell only where it stands leave it open.
_DTYPE_WORDS = (
    r"(fp|tf|bf|float|int)[- ]?\d|\bf(8|16|32)\b|nf4|[48]-?bit|qlora|\b(16|32)-|amp|mixed|pure|true|single|recipe"
    r"|default|stated|unknown"
)
_SPELLED = (
    (r"float-?(4|8)\b|float(4|8)(?=_)", r"fp\1\2"),
    (r"e4m3\w*|e5m2\w*", "fp8"),
    (r"\bhalf\b", "fp16"),
)

_VOCABULARY = (
    50304  # GPT-2's 50,257 tokens padded to a multiple of 128, as Megatron-LM's examples and tests have it
)

_SERVING: tuple[tuple[Words, str], ...] = (
    (("vllm",), "vllm"),  # first, as engines are often named beside a trainer: "Megatron-Core + vLLM"
    (("trtllm",), "tensorrt-llm"),
    (("fastertransformer",), "tensorrt-llm"),  # its forerunner
    (("tensorrt",), "tensorrt-llm"),
    (("trt-llm",), "tensorrt-llm"),
    (("sglang",), "sglang"),
    (("deepspeed",), "deepspeed"),
    (("mii",), "deepspeed"),
    (("hugging",), "eager"),
    (("hf",), "eager"),
    (("megatron",), "eager"),
    (("transformers",), "eager"),
    ((), "vllm"),  # paged cache, captured graphs, continuous batches: what most engines do
)


def kind_of(gpu: str) -> DeviceKind:
    """The device kind that a record's `gpu` names; notes in parentheses are passed over.

    InputError names the nearest where there is none.
    """
    return kind_named(re.sub(r"\(.*?\)", " ", gpu).strip() or gpu)


def architecture_of(model: Mapping[str, Any] | str) -> Architecture:
    """The architecture of a record's `model`: its shape, completed with what is known of that name; or a name alone.

    Notes (texts, lists and objects that are no field of a shape) are passed over; a shape without a vocabulary has
    GPT-2's. InputError names an unknown or a missing field.
    """
    if isinstance(model, str):
        return named(model)
    model = dict(model)
    if isinstance(model.get("moe_layer_freq"), list):
        model["moe_layer_freq"] = str(model["moe_layer_freq"])
    for key, value in model.items():
        if isinstance(value, list | Mapping) and key in SHAPE_FIELDS:
            raise InputError(f"the model has {key} = {shown(value)}, a single value is needed")
    kept = {
        key: value
        for key, value in model.items()
        if key in SHAPE_FIELDS or not isinstance(value, str | list | Mapping)
    }
    if kept.get("layers") and not kept.get("vocab"):
        kept["vocab"] = _VOCABULARY
    return _architecture(tuple(sorted(kept.items())))


@lru_cache(maxsize=4096)
def _architecture(shape: tuple[tuple[str, Any], ...]) -> Architecture:
    return from_shape(dict(shape))


def training_stack_of(framework: str, record: Record | None = None) -> str:
    """The software stack that trains: `megatron`, `compiled`, `flash` (the default) or `eager`.

    record: its `compile` and `attention` decide where the framework leaves them open.
    """
    row = record or {}
    text = framework.lower()
    name = _first(_TRAINING, text) or "flash"
    if name == "flash" and row.get("compile") is True:
        return "compiled"
    if str(row.get("attention", "")).lower() in ("eager", "unfused", "naive", "math"):
        return "eager"
    return name


def serving_stack_of(engine: str) -> str:
    """The software stack that generates: `tensorrt-llm`, `sglang`, `deepspeed`, `eager` or `vllm` (the default)."""
    return _first(_SERVING, engine) or "vllm"


def fabric_of(record: Record) -> Fabric:
    """The links of a record's cluster: what `interconnect` says of them, else those of a typical system."""
    per_node = record.get("gpus_per_node")
    words = str(record.get("interconnect") or "")
    return fabric_of_words(kind_of(str(record.get("gpu", ""))), words, int(per_node) if per_node else None)


def precision_of(text: str | None, framework: str = "") -> Precision:
    """The dtypes of training that words such as "bf16 + fp32 grad accumulation" or "MXFP8" describe.

    Nothing, and "bf16" alone: 16-bit products and weights; float32 gradients, master weights and moments, as Megatron
    has them. fp16, and frameworks of `_HALF_GRADIENTS`, accumulate in 16 bits unless the words say fp32. Sharded data
    parallelism and automatic mixed precision (`_FLOAT32_WEIGHTS`) hold float32 parameters, which they cast to compute.
    "pure" and "true": everything in 16 bits. Weights in 4 or 8 bit integers are those of a frozen model under adapters.
    """
    words, name = (text or "").lower(), framework.lower()
    for spelled, usual in _SPELLED:
        words = re.sub(spelled, usual, words)
    if words.strip() and not re.search(_DTYPE_WORDS, words):
        known = "fp32, tf32, bf16, fp16, fp8, fp4, int8, int4 and nf4"
        raise InputError(f"precision {shown(text)} names no dtype that is known: {known} are")
    half = "float16" if re.search(r"\b(fp16|float16|16-)", words) else "bfloat16"
    base = Precision(compute=half, weights=half, activations=half)
    narrow = re.search(r"bf16|bfloat16|fp16|float16|fp8|fp4", words)
    if re.search(r"\b(fp32|float32|tf32|tfloat32|32-)", words) and not narrow:
        compute = "tfloat32" if "tf" in words else "float32"
        return replace(FLOAT32, compute=compute, cache=base.cache)
    for pattern, weights in _FROZEN:
        if re.search(pattern, words):
            return replace(base, weights=weights)
    if re.search(r"pure|-true", words):
        return replace(base, gradients=half, master=False, moments=half)
    if "fp32" not in words and (half == "float16" or any(word in name for word in _HALF_GRADIENTS)):
        base = replace(base, gradients=half)
    if any(word in f"{name} {words}" for word in _FLOAT32_WEIGHTS):
        base = replace(base, weights="float32", master=False)
    if "fp4" in words:
        return replace(base, compute="float4")
    return replace(base, compute="float8") if "fp8" in words else base


def shards_of(record: Mapping[str, Any], dp: int, cp: int) -> int:
    """Replicas over which a sharding group reaches; context-parallel ranks are part of the group."""
    group = record.get("fsdp_group") or record.get("zero1_group")
    if not isinstance(group, int):
        return 0
    shard = max(1, group // cp)
    return shard if shard < dp and dp % shard == 0 else 0


def _first(table: tuple[tuple[Words, str], ...], text: str) -> str | None:
    """The first entry whose words all stand in the text."""
    lower = text.lower()
    return next((name for words, name in table if all(word in lower for word in words)), None)
