"""Mixtures of experts over grouped-query attention.

Field names: `configuration_<family>.py` of Hugging Face transformers (https://github.com/huggingface/transformers).
"""

from __future__ import annotations

from rpeg.architecture.families.build import (
    decoder,
    dense_first,
    every,
    experts_of,
    layer_count,
    mixers_of,
    sparse_steps,
)
from rpeg.architecture.families.config import Config
from rpeg.architecture.families.dense import qwen_mixers, window
from rpeg.architecture.layers import FeedForward
from rpeg.architecture.model import Architecture


def mixtral(config: Config) -> Architecture:
    """Mixtral (arXiv:2401.04088): experts in every layer."""
    experts = experts_of(config, ffn="intermediate_size", shared_ffn=0)
    return decoder(config, experts=experts, window=config.maybe("sliding_window"))


def qwen2_moe(config: Config) -> Architecture:
    """Qwen1.5-MoE, Qwen2-MoE: a shared expert with a gate of its own."""
    shared = config.zero_or_more("shared_expert_intermediate_size")
    experts = experts_of(config, shared_ffn=shared, shared_gate=True)
    return decoder(
        config,
        qkv_bias=config.flag("qkv_bias", True),
        experts=experts,
        window=window(config),
        mixers=qwen_mixers(config),
        feeds=sparse_steps(config),
    )


def qwen3_moe(config: Config) -> Architecture:
    """Qwen3-MoE (arXiv:2505.09388): no shared expert (some configs carry its width unused)."""
    config.get("shared_expert_intermediate_size")
    bias = config.flag("attention_bias") or config.flag("qkv_bias")
    return decoder(
        config,
        qkv_bias=bias,
        output_bias=config.flag("attention_bias"),
        qk_norm=config.flag("use_qk_norm", True),
        experts=experts_of(config, shared_ffn=0),
        window=window(config),
        mixers=qwen_mixers(config),
        feeds=sparse_steps(config),
        defaults={"head_dim": 128},
    )


def gpt_oss(config: Config) -> Architecture:
    """GPT-OSS (arXiv:2508.10925): every other layer windowed, the first too; sinks; biases everywhere."""
    bias = config.flag("attention_bias", True)
    experts = experts_of(config, ffn="intermediate_size", shared_ffn=0, bias=True, router_bias=True)
    alternate = every(layer_count(config), 2, "full", "window")
    return decoder(
        config,
        qkv_bias=bias,
        output_bias=bias,
        sinks=True,
        experts=experts,
        window=config.count("sliding_window", default=128),
        mixers=mixers_of(config, alternate),
        defaults={"head_dim": 64},
    )


def minimax_m2(config: Config) -> Architecture:
    """MiniMax-M2: full attention in all layers, norms over all of q and of k."""
    if set(config.items("attn_type_list") or [1]) != {1}:
        raise config.refuse("attn_type_list", "1 throughout (lightning attention is not described)")
    normed = config.flag("use_qk_norm", True)
    wide = config.text("qk_norm_type", default="per_layer") == "per_layer"
    config.get("layer_types")  # some copies carry them; all are full attention
    experts = experts_of(
        config, ffn="intermediate_size", shared_ffn=config.zero_or_more("shared_intermediate_size")
    )
    return decoder(config, wide_qk_norm=normed and wide, qk_norm=normed and not wide, experts=experts)


def glm4_moe(config: Config) -> Architecture:
    """GLM-4.5 to 4.7 (arXiv:2508.06471): dense first layers, a shared expert, optional norms on q and k."""
    return decoder(
        config,
        qkv_bias=config.flag("attention_bias"),
        qk_norm=config.flag("use_qk_norm"),
        experts=experts_of(config),
        feeds=dense_first(config),
        defaults={"head_dim": 128},
    )


def llama4(config: Config) -> Architecture:
    """Llama-4's text model: attention in chunks in three of four layers, a shared expert as wide as a routed one.

    A chunk is taken for a window of its length: a token sees half of that on average, so costs are upper bounds.
    """
    layers, width = layer_count(config), config.count("intermediate_size")
    step = config.count("interleave_moe_layer_step", default=1)
    sparse = config.items("moe_layers")
    experts = experts_of(config, ffn="intermediate_size", shared_ffn=width)
    feeds: list[FeedForward] = [
        "moe" if (index in sparse if sparse is not None else (index + 1) % step == 0) else "dense"
        for index in range(layers)
    ]
    config.get("no_rope_layers", "no_rope_layer_interval")
    bias = config.flag("attention_bias")
    config.flag("use_qk_norm")  # without parameters
    return decoder(
        config,
        ffn=config.count("intermediate_size_mlp"),
        qkv_bias=bias,
        output_bias=bias,
        experts=experts,
        window=config.count("attention_chunk_size", default=8192),
        mixers=mixers_of(config, every(layers, 4, "full", "window")),
        feeds=feeds,
        defaults={"head_dim": 128},
    )


FAMILIES = {
    "glm4_moe": glm4_moe,
    "gpt_oss": gpt_oss,
    "llama4_text": llama4,
    "minimax_m2": minimax_m2,
    "mixtral": mixtral,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
}
