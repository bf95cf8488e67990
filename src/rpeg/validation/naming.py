"""What published records call things, as what the model knows: device kinds, architectures, stacks, dtypes, links.

Rules are tables of words, tried in order; the first whose words all stand in the text decides, and the last is the
default for names never seen. No rule knows a source or a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rpeg.architecture import Architecture
from rpeg.cluster import DeviceKind, Link, device_kind
from rpeg.cluster.fabric import Fabric
from rpeg.cost.precision import FLOAT32, Precision
from rpeg.errors import InputError, nearest
from rpeg.validation import _stopgap

Record = Mapping[str, Any]
Words = tuple[str, ...]

_KINDS: tuple[tuple[Words, str], ...] = (
    (("gb300",), "gb300"),
    (("gb200",), "gb200"),
    (("gh200", "144"), "gh200-144gb"),
    (("gh200",), "gh200-96gb"),
    (("b300",), "b300"),
    (("b200",), "b200"),
    (("h200",), "h200"),
    (("h100", "pcie"), "h100-pcie"),
    (("h100", "96gb"), "h100-96gb"),
    (("h100", "95gb"), "h100-96gb"),
    (("h100",), "h100-sxm"),
    (("h800",), "h800-sxm"),
    (("h20",), "h20"),
    (("a800",), "a800-80gb-sxm"),
    (("a100", "40gb", "pcie"), "a100-40gb-pcie"),
    (("a100", "40gb"), "a100-40gb-sxm"),
    (("a100", "pcie"), "a100-80gb-pcie"),
    (("a100",), "a100-80gb-sxm"),
    (("v100",), "v100-32gb-sxm"),
    (("a6000",), "rtx-a6000"),
    (("6000", "ada"), "rtx-6000-ada"),
    (("4090",), "rtx-4090"),
    (("l40s",), "l40s"),
    (("l20",), "l20"),
    (("l4-",), "l4"),
    (("a10g",), "a10g"),
    (("a10",), "a10"),
)

_TRAINING: tuple[tuple[Words, str], ...] = (
    (
        ("megatron-deepspeed",),
        "eager",
    ),  # legacy Megatron layers: unfused attention, kernels launched one by one
    (("maxtext",), "compiled"),
    (("paxml",), "compiled"),
    (("jax",), "compiled"),
    (("xla",), "compiled"),
    (("automodel",), "megatron"),  # NeMo AutoModel runs TransformerEngine's layers
    (("nemo",), "megatron"),
    (("megatron",), "megatron"),
    (("transformerengine",), "megatron"),
    (("mindspeed",), "megatron"),
    (("alpa",), "compiled"),
    (("deepspeed-chat",), "eager"),
    ((), "flash"),  # eager PyTorch with FlashAttention: what most others are
)
_COMPILED_BY_DEFAULT = ("torchtitan",)  # torch.compile per layer, unless the record says compile: false

# DeepSpeed's and InternEvo's optimizers reduce gradients in the dtype of the weights.
_HALF_GRADIENTS = ("deepspeed", "internevo", "colossal")

# FSDP's mixed precision policy, torch.autocast and MaxText keep float32 parameters and cast them when they are used.
_FLOAT32_WEIGHTS = ("fsdp", "torchtitan", "composer", "jax", "amp")

_SERVING: tuple[tuple[Words, str], ...] = (
    (("trtllm",), "tensorrt-llm"),
    (("tensorrt",), "tensorrt-llm"),
    (("trt-llm",), "tensorrt-llm"),
    (("sglang",), "sglang"),
    (("deepspeed",), "deepspeed"),
    (("mii",), "deepspeed"),
    (("hugging",), "eager"),
    (("transformers",), "eager"),
    ((), "vllm"),  # paged cache, captured graphs, continuous batches: what most engines do
)

# Per direction and device: NVLink or PCIe in the node; devices it joins; the network beyond (typical systems).
_LINKS: tuple[tuple[str, float, int, float], ...] = (
    ("gb300", 9e11, 72, 1e11),
    ("gb200", 9e11, 72, 5e10),
    ("gh200", 1.5e11, 4, 2.5e10),
    ("b300", 9e11, 8, 1e11),
    ("b200", 9e11, 8, 5e10),
    ("h800", 2e11, 8, 5e10),
    ("h20", 4.5e11, 8, 5e10),
    ("h100", 4.5e11, 8, 5e10),
    ("a800", 2e11, 8, 2.5e10),
    ("a100", 3e11, 8, 2.5e10),
    ("", 3.2e10, 8, 1.25e10),
)
_NODE_LATENCY_SECONDS, _RACK_LATENCY_SECONDS = 5e-6, 1e-5
_MOST_DEVICES = 65536


def kind_of(gpu: str) -> DeviceKind:
    """The device kind that a record's `gpu` names. InputError names the nearest where there is none."""
    name = _first(_KINDS, gpu)
    if name is None:
        raise InputError(f"device '{gpu}' is not known. {nearest(gpu, [known for _, known in _KINDS])}")
    return device_kind(name)


def architecture_of(model: Mapping[str, Any]) -> Architecture:
    """The architecture of a record's `model`. InputError where its shape is not given and its name not known."""
    for field in ("layers", "hidden", "heads"):
        if not model.get(field):
            raise InputError(
                f"model {model.get('name', '(no name)')} has no '{field}', and is not known by name"
            )
    return _stopgap.architecture(model)


def training_stack_of(framework: str, record: Record | None = None) -> str:
    """The software stack that trains: `megatron`, `compiled`, `flash` (the default) or `eager`.

    record: its `compile` and `attention` decide where the framework leaves them open.
    """
    row = record or {}
    text = framework.lower()
    if any(word in text for word in _COMPILED_BY_DEFAULT):
        return "flash" if row.get("compile") is False else "compiled"
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
    """The links of a record's cluster: the words of `interconnect` where they give a rate, else what is typical.

    gpus_per_node, n_gpus: sizes; an NVLink domain wider than the node (NVL72) joins its nodes.
    """
    gpu = str(record.get("gpu", ""))
    name = kind_of(gpu).name
    words = str(record.get("interconnect") or "")
    _, inside, domain, beyond = next(row for row in _LINKS if name.startswith(row[0]))
    per_node = int(record.get("gpus_per_node") or min(domain, 8))
    width = max(domain, per_node) if domain > 8 else per_node
    rate = network_rate(words, per_node)
    node = Link("node", inside, _NODE_LATENCY_SECONDS, f"typical of {name}")
    rack = Link("rack", rate or beyond, _RACK_LATENCY_SECONDS, words or f"typical of {name}")
    return Fabric(((node, width), (rack, max(_MOST_DEVICES, width))))


def network_rate(words: str, devices_per_node: int) -> float | None:
    """Bytes a second, device and direction of the network that `interconnect` describes; None where it gives none.

    "4x100Gb RoCE per node", "1600 Gbps/node", "4 Omni-Path 100Gb/s links per node", "400 Gb/s RDMA per GPU".
    """
    found = re.search(r"(?:(\d+)\s*x\s*|(\d+)\s+[A-Za-z-]+\s+)?(\d+)\s*Gb(?:/s|ps|it/s)?(?![A-Za-z])", words)
    if not found:
        return None
    count = int(found[1] or found[2] or 1)
    rate = count * int(found[3]) / 8 * 1e9
    tail = words[found.end() :]
    return rate / devices_per_node if re.match(r"[\s\w-]*(/\s*node|per node)", tail) else rate


def precision_of(text: str | None, framework: str = "") -> Precision:
    """The dtypes of training that words such as "bf16 + fp32 grad accumulation" or "MXFP8" describe.

    Nothing, and "bf16" alone: 16-bit products and weights; float32 gradients, master weights and moments, as Megatron
    has them. fp16, and frameworks of `_HALF_GRADIENTS`, accumulate in 16 bits unless the words say fp32. Sharded data
    parallelism and automatic mixed precision (`_FLOAT32_WEIGHTS`) hold float32 parameters, which they cast to compute.
    "pure" and "true": everything in 16 bits.
    """
    words, name = (text or "").lower(), framework.lower()
    half = "float16" if re.search(r"\bfp16|\bfloat16", words) else "bfloat16"
    base = Precision(compute=half, weights=half, activations=half)
    if re.search(r"\b(fp32|float32|tf32)", words) and not re.search(
        r"bf16|bfloat16|fp16|float16|fp8|fp4", words
    ):
        return replace(FLOAT32, cache=base.cache)
    if re.search(r"pure|-true", words):
        return replace(base, gradients=half, master=False, moments=half)
    if "fp32" not in words and (half == "float16" or any(word in name for word in _HALF_GRADIENTS)):
        base = replace(base, gradients=half)
    if any(word in f"{name} {words}" for word in _FLOAT32_WEIGHTS):
        base = replace(base, weights="float32", master=False)
    if "fp4" in words:
        return replace(base, compute="float4")
    return replace(base, compute="float8") if "fp8" in words else base


def _first(table: tuple[tuple[Words, str], ...], text: str) -> str | None:
    """The first entry whose words all stand in the text."""
    lower = text.lower()
    return next((name for words, name in table if all(word in lower for word in words)), None)
