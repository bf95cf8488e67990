"""Device kinds and architectures until the libraries of `rpeg.cluster` and `rpeg.architecture` hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpeg.architecture.model import Architecture, Experts, Latent, Layer
from rpeg.cluster import DeviceKind

# name: memory GB, usable memory bandwidth TB/s, TFLOP/s of float32 · tfloat32 · bfloat16 · float8 · float4, host GB/s
_KINDS = {
    "a100-40gb-sxm": (40, 1.555, 19.5, 156, 312, 0, 0, 32),
    "a100-80gb-sxm": (80, 2.039, 19.5, 156, 312, 0, 0, 32),
    "a800-80gb-sxm": (80, 2.039, 19.5, 156, 312, 0, 0, 32),
    "h100-sxm": (80, 3.35, 67, 494.5, 989.5, 1979, 0, 64),
    "h100-96gb": (96, 2.4, 67, 494.5, 989.5, 1979, 0, 64),
    "h800-sxm": (80, 3.35, 67, 494.5, 989.5, 1979, 0, 64),
    "h20": (96, 4.0, 44, 74, 148, 296, 0, 64),
    "h200": (141, 4.8, 67, 494.5, 989.5, 1979, 0, 64),
    "gh200-96gb": (96, 4.0, 67, 494.5, 989.5, 1979, 0, 450),
    "b200": (180, 8.0, 75, 1125, 2250, 4500, 9000, 64),
    "b300": (288, 8.0, 75, 1125, 2250, 4500, 13500, 128),
    "gb200": (186, 8.0, 80, 1250, 2500, 5000, 10000, 450),
    "gb300": (288, 8.0, 80, 1250, 2500, 5000, 15000, 450),
    "l40s": (48, 0.864, 91.6, 183, 362, 733, 0, 32),
    "a10g": (24, 0.6, 31.5, 35, 70, 0, 0, 32),
    "rtx-4090": (24, 1.008, 82.6, 82.6, 165.2, 330.3, 0, 32),
}


def kind(name: str) -> DeviceKind:
    """A kind of the table."""
    memory, bandwidth, single, tensor, half, quarter, eighth, host = _KINDS[name]
    peaks = {"float32": single, "tfloat32": tensor, "bfloat16": half, "float16": half, "float8": quarter}
    peaks |= {"float4": eighth, "float64": single / 2}
    return DeviceKind(
        name=name,
        memory_bytes=int(memory * 1e9 if memory > 100 else memory * 2**30),
        memory_bandwidth_bytes_per_second=bandwidth * 1e12,
        peak_flops=tuple((dtype, peak * 1e12) for dtype, peak in peaks.items() if peak),
        host_bandwidth_bytes_per_second=host * 1e9,
        launch_overhead_seconds=3e-6,
    )


def architecture(model: Mapping[str, Any]) -> Architecture:
    """An architecture from the flat fields of the published measurements."""
    layers, heads = int(model["layers"]), int(model["heads"])
    experts, first = _experts(model), int(model.get("first_k_dense") or 0)
    mixer: Any = "latent" if model.get("kv_lora_rank") else "full"
    dense, moe = Layer(mixer, "dense"), Layer(mixer, "moe")
    pattern = (dense,) * first + (moe,) * (layers - first) if experts else (dense,) * layers
    head_dim = int(model.get("head_dim") or model["hidden"] // heads)
    kv_heads = int(model.get("kv_heads") or heads)
    return Architecture(
        name=str(model.get("name", "model")),
        family="measured",
        layers=layers,
        hidden=int(model["hidden"]),
        heads=heads,
        kv_heads=kv_heads if heads % kv_heads == 0 else heads,
        head_dim=head_dim,
        ffn=int(model.get("ffn") or model.get("moe_ffn") or 4 * model["hidden"]),
        vocabulary=int(model.get("vocab") or 32000),
        context=131072,
        tied_embeddings=bool(model.get("tied_embeddings")),
        gated=bool(model.get("gated_mlp", True)),
        learned_positions=False,
        pattern=pattern,
        experts=experts,
        latent=_latent(model),
    )


def _experts(model: Mapping[str, Any]) -> Experts | None:
    if not model.get("n_experts"):
        return None
    ffn = int(model["moe_ffn"])
    shared = ffn * int(model.get("n_shared_experts") or model.get("n_shared") or 0)
    return Experts(int(model["n_experts"]), int(model["topk"]), ffn, shared)


def _latent(model: Mapping[str, Any]) -> Latent | None:
    if not model.get("kv_lora_rank"):
        return None
    rank = model.get("q_lora_rank")
    return Latent(
        int(rank) if rank else None,
        int(model["kv_lora_rank"]),
        int(model.get("qk_nope_head_dim") or 128),
        int(model.get("qk_rope_head_dim") or 64),
        int(model.get("v_head_dim") or 128),
    )
