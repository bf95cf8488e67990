"""Architectures until the library of `rpeg.architecture` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpeg.architecture.model import Architecture, Experts, Latent, Layer


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
