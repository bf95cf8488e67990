"""Hugging Face configs of architectures: the way back from `families`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from rpeg.architecture import writing_gpt
from rpeg.architecture.huggingface import from_config
from rpeg.architecture.layers import Layer
from rpeg.architecture.model import Architecture
from rpeg.errors import InputError, nearest

_LETTERS = {
    Layer("recurrent", "none"): "M",
    Layer("full", "none"): "*",
    Layer("none", "dense"): "-",
    Layer("none", "moe"): "E",
}


def to_config(architecture: Architecture) -> dict[str, Any]:
    """A Hugging Face config of this shape: `from_config` reads the same architecture back.

    It describes shapes alone: what `Architecture` does not know (rotary bases, tokens) keeps its default.
    InputError where the family is not known, or has no place for a part of this architecture.
    """
    family = architecture.family
    if family not in _WRITERS:
        raise InputError(
            f"a config of {architecture.name} cannot be written: family '{family}'. {nearest(family, _WRITERS)}"
        )
    config = {"model_type": family, **_WRITERS[family](architecture)}
    back = from_config(config, architecture.name)
    if back != architecture:
        kept = [field.name for field in fields(Architecture)]
        wrong = [key for key in kept if getattr(back, key) != getattr(architecture, key)]
        raise InputError(
            f"a config of {architecture.name} cannot be written: family '{family}' has no place for its "
            f"{', '.join(wrong)}. Describe it by another family"
        )
    return config


def _shared(a: Architecture) -> dict[str, Any]:
    """The field names of Llama."""
    return {
        "hidden_size": a.hidden,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "num_hidden_layers": a.layers,
        "head_dim": a.head_dim,
        "intermediate_size": a.ffn,
        "vocab_size": a.vocabulary,
        "max_position_embeddings": a.context,
        "tie_word_embeddings": a.tied_embeddings,
        "hidden_act": a.activation,
    }


def _llama(a: Architecture) -> dict[str, Any]:
    return {**_shared(a), "attention_bias": a.output_bias, "mlp_bias": a.ffn_bias}


def _biased(a: Architecture) -> dict[str, Any]:
    return {**_shared(a), "attention_bias": a.qkv_bias}


def _windowed(a: Architecture) -> dict[str, Any]:
    return {**_shared(a), "sliding_window": a.window}


def _qwen(a: Architecture) -> dict[str, Any]:
    """Qwen's window needs a word of its own, and starts at a layer."""
    window = {"sliding_window": a.window, "use_sliding_window": a.window is not None, "max_window_layers": 0}
    return {**_shared(a), "attention_bias": a.output_bias, **window, **_layer_types(a)}


def _qwen2(a: Architecture) -> dict[str, Any]:
    return {key: value for key, value in _qwen(a).items() if key != "attention_bias"}


def _layer_types(a: Architecture, windowed: str = "sliding_attention") -> dict[str, Any]:
    """`layer_types`, where layers mix differently."""
    words = {"window": windowed, "full": "full_attention", "recurrent": "linear_attention"}
    mixers = [layer.mixer for layer in a.pattern]
    return {"layer_types": [words.get(mixer, mixer) for mixer in mixers]} if len(set(mixers)) > 1 else {}


def _gemma(a: Architecture) -> dict[str, Any]:
    shared = _biased(a)
    return {**shared, "hidden_activation": shared.pop("hidden_act"), "attention_bias": a.qkv_bias}


def _gemma_windowed(a: Architecture) -> dict[str, Any]:
    return {**_gemma(a), "sliding_window": a.window, **_layer_types(a)}


def _stablelm(a: Architecture) -> dict[str, Any]:
    return {**_shared(a), "use_qkv_bias": a.qkv_bias, "use_parallel_residual": a.shared_norm}


def _smollm3(a: Architecture) -> dict[str, Any]:
    return {**_qwen(a), "mlp_bias": a.ffn_bias}


def _experts(
    a: Architecture, count: str = "num_experts", ffn: str = "moe_intermediate_size"
) -> dict[str, Any]:
    if a.experts is None:
        return {}
    return {count: a.experts.count, "num_experts_per_tok": a.experts.active, ffn: a.experts.ffn}


def _mixtral(a: Architecture) -> dict[str, Any]:
    return {**_windowed(a), **_experts(a, "num_local_experts", "intermediate_size")}


def _qwen_moe(a: Architecture) -> dict[str, Any]:
    dense = [index for index, layer in enumerate(a.pattern) if layer.feed_forward == "dense"]
    return {**_qwen(a), **_experts(a), "mlp_only_layers": dense}


def _qwen2_moe(a: Architecture) -> dict[str, Any]:
    config = {**_qwen_moe(a), "qkv_bias": a.qkv_bias, **_shared_expert(a)}
    del config["attention_bias"]
    return config


def _shared_expert(a: Architecture) -> dict[str, Any]:
    return {"shared_expert_intermediate_size": a.experts.shared_ffn} if a.experts else {}


def _gpt_oss(a: Architecture) -> dict[str, Any]:
    return {
        **_biased(a),
        **_experts(a, "num_local_experts", "intermediate_size"),
        "sliding_window": a.window,
        "layer_types": [
            "sliding_attention" if layer.mixer == "window" else "full_attention" for layer in a.pattern
        ],
    }


def _minimax(a: Architecture) -> dict[str, Any]:
    normed = {"use_qk_norm": a.wide_qk_norm or a.qk_norm}
    return {**_shared(a), **_experts(a, "num_local_experts", "intermediate_size"), **normed}


def _first_dense(a: Architecture) -> dict[str, Any]:
    """Routed experts after dense layers, shared experts counted in widths of a routed one."""
    feeds = [layer.feed_forward for layer in a.pattern]
    first = feeds.index("moe") if "moe" in feeds else 0
    shared = a.experts.shared_ffn // a.experts.ffn if a.experts else 0
    groups = {"n_group": 1, "topk_group": 1}  # the router's groups shape nothing, but must divide the experts
    counts = {"n_shared_experts": shared, "first_k_dense_replace": first}
    return {**_experts(a, "n_routed_experts"), **counts, **groups}


def _glm4_moe(a: Architecture) -> dict[str, Any]:
    return {**_biased(a), **_first_dense(a), "use_qk_norm": a.qk_norm}


def _latent(a: Architecture) -> dict[str, Any]:
    shared = {key: value for key, value in _shared(a).items() if key != "head_dim"}
    if a.latent is None:
        return shared
    index = {
        "index_topk": a.latent.selected,
        "index_n_heads": a.latent.index_heads,
        "index_head_dim": a.latent.index_head_dim,
    }
    return {
        **shared,
        **_first_dense(a),
        "q_lora_rank": a.latent.q_rank,
        "kv_lora_rank": a.latent.kv_rank,
        "qk_nope_head_dim": a.latent.nope_head_dim,
        "qk_rope_head_dim": a.latent.rope_head_dim,
        "v_head_dim": a.latent.value_head_dim,
        **(index if a.latent.selected else {}),
    }


def _llama4(a: Architecture) -> dict[str, Any]:
    sparse = [index for index, layer in enumerate(a.pattern) if layer.feed_forward == "moe"]
    config = {
        **_biased(a),
        **_experts(a, "num_local_experts", "intermediate_size"),
        "intermediate_size_mlp": a.ffn,
    }
    return {
        **config,
        "moe_layers": sparse,
        "attention_chunk_size": a.window,
        **_layer_types(a, "chunked_attention"),
    }


def _delta(a: Architecture) -> dict[str, Any]:
    if a.recurrent is None:
        return _shared(a)
    moe = {**_experts(a), **_shared_expert(a)}
    return {
        **_biased(a),
        **moe,
        **_layer_types(a),
        "attn_output_gate": a.output_gate,
        "linear_num_value_heads": a.recurrent.heads,
        "linear_value_head_dim": a.recurrent.head_dim,
        "linear_key_head_dim": a.recurrent.state,
        "linear_num_key_heads": a.recurrent.groups,
        "linear_conv_kernel_dim": a.recurrent.convolution,
    }


def _nemotron_h(a: Architecture) -> dict[str, Any]:
    config = _llama(a)
    for derived in ("hidden_act", "num_hidden_layers"):
        del config[derived]
    pattern = "".join(_LETTERS.get(layer, "?") for layer in a.pattern)
    config |= {"hybrid_override_pattern": pattern, "mlp_hidden_act": a.activation}
    if a.recurrent:
        config |= {
            "mamba_num_heads": a.recurrent.heads,
            "mamba_head_dim": a.recurrent.head_dim,
            "ssm_state_size": a.recurrent.state,
            "n_groups": a.recurrent.groups,
            "conv_kernel": a.recurrent.convolution,
        }
    if a.experts:
        shared = {"n_shared_experts": 1, "moe_shared_expert_intermediate_size": a.experts.shared_ffn}
        config |= {**_experts(a, "n_routed_experts"), **shared, "moe_latent_size": a.experts.latent}
    return config


_WRITERS: Mapping[str, Callable[[Architecture], dict[str, Any]]] = {
    "bloom": writing_gpt.bloom,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "kimi_k2"), _latent),
    "falcon": writing_gpt.falcon,
    "gemma": _gemma,
    "gemma2": _gemma_windowed,
    "gemma3_text": _gemma_windowed,
    "glm4_moe": _glm4_moe,
    "glm_moe_dsa": _latent,
    "gpt2": writing_gpt.gpt2,
    "gptj": writing_gpt.gpt2,
    "gpt_neox": _biased,
    "gpt_oss": _gpt_oss,
    "granite": _llama,
    "llama": _llama,
    "llama4_text": _llama4,
    "minimax_m2": _minimax,
    "mistral": _windowed,
    "mixtral": _mixtral,
    "mpt": writing_gpt.mpt,
    "nemotron": _llama,
    "nemotron_h": _nemotron_h,
    "olmo2": _biased,
    "opt": writing_gpt.opt,
    "phi": _shared,
    "phi3": _windowed,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen,
    "qwen3_5_moe_text": _delta,
    "qwen3_5_text": _delta,
    "qwen3_moe": _qwen_moe,
    "qwen3_next": _delta,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
}
