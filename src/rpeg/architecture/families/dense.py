"""Rotary positions, RMSNorm, gated feed-forward: Llama and those that share its layer.

Field names: `configuration_<family>.py` of Hugging Face transformers (https://github.com/huggingface/transformers).
"""

from __future__ import annotations

from typing import Any

from rpeg.architecture.families.build import decoder, every, layer_count, mixers_of
from rpeg.architecture.families.config import Config
from rpeg.architecture.layers import Mixer
from rpeg.architecture.model import Architecture


def llama(config: Config) -> Architecture:
    """Llama, SmolLM and the many that share their layer: no biases unless the config asks for them."""
    bias = config.flag("attention_bias")
    return decoder(config, qkv_bias=bias, output_bias=bias, ffn_bias=config.flag("mlp_bias"))


def internlm2(config: Config) -> Architecture:
    """InternLM-2: Llama with one flag for the biases of attention."""
    bias = config.flag("bias")
    return decoder(config, qkv_bias=bias, output_bias=bias)


def mistral(config: Config) -> Architecture:
    """Mistral and Phi-3: every layer windowed where there is a window."""
    return decoder(config, window=config.maybe("sliding_window"))


def qwen2(config: Config) -> Architecture:
    """Qwen-2, 2.5: biases on q, k and v."""
    config.flag("attention_bias")  # carried by some, obeyed by none
    return decoder(config, qkv_bias=True, window=window(config), mixers=qwen_mixers(config))


def qwen3(config: Config) -> Architecture:
    """Qwen-3: norms on q and k, heads 128 wide unless said otherwise, whatever hidden / heads is."""
    bias = config.flag("attention_bias")
    return decoder(
        config,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        window=window(config),
        mixers=qwen_mixers(config),
        defaults={"head_dim": 128},
    )


def window(config: Config) -> int | None:
    """Qwen's window, which `use_sliding_window` turns on."""
    width = config.maybe("sliding_window")
    return width if config.flag("use_sliding_window") else None


def qwen_mixers(config: Config) -> list[Mixer]:
    """Qwen windows the layers from `max_window_layers` on."""
    first = config.zero_or_more("max_window_layers")
    windowed = window(config) is not None
    return mixers_of(
        config,
        ["window" if windowed and index >= first else "full" for index in range(layer_count(config))],
    )


def smollm3(config: Config) -> Architecture:
    """SmolLM-3: Llama's layer with an optional window."""
    bias = config.flag("attention_bias")
    return decoder(
        config,
        qkv_bias=bias,
        output_bias=bias,
        ffn_bias=config.flag("mlp_bias"),
        tied_embeddings=config.flag("tie_word_embeddings", True),
        window=window(config),
        mixers=qwen_mixers(config),
    )


def olmo2(config: Config) -> Architecture:
    """OLMo-2: norms after the parts instead of before, and over all of q and of k."""
    bias = config.flag("attention_bias")
    return decoder(config, qkv_bias=bias, output_bias=bias, wide_qk_norm=True)


def stablelm(config: Config) -> Architecture:
    """StableLM-2: LayerNorm; one norm a layer where attention and feed-forward run in parallel."""
    if config.flag("qk_layernorm"):
        raise config.refuse("qk_layernorm", "false (norms of single heads are not described)")
    return decoder(
        config,
        norm_bias=True,
        qkv_bias=config.flag("use_qkv_bias"),
        shared_norm=config.flag("use_parallel_residual"),
    )


def nemotron(config: Config) -> Architecture:
    """Nemotron-4, Minitron: LayerNorm, squared ReLU without a gate."""
    bias = config.flag("attention_bias")
    return decoder(
        config,
        norm_bias=True,
        qkv_bias=bias,
        output_bias=bias,
        ffn_bias=config.flag("mlp_bias"),
        gated=False,
        activation=config.text("hidden_act", default="relu2"),
    )


def gemma(config: Config) -> Architecture:
    """Gemma: tied embeddings, wide heads, GELU."""
    return _gemma(config, {"head_dim": 256})


def gemma2(config: Config) -> Architecture:
    """Gemma-2 (arXiv:2408.00118): norms before and after each part, every other layer windowed, the first too."""
    alternate = every(layer_count(config), 2, "full", "window")
    return _gemma(config, {"head_dim": 256}, post_norms=True, mixers=mixers_of(config, alternate))


def gemma3(config: Config) -> Architecture:
    """Gemma-3 (arXiv:2503.19786): five windowed layers to a full one, norms on q and k.

    The published configs of the larger ones leave out what transformers' `Gemma3TextConfig` has as default.
    """
    period = config.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    layers = layer_count(config)
    defaults = {
        "head_dim": 256,
        "num_attention_heads": 8,
        "kv_heads": 4,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    }
    mixers = mixers_of(config, every(layers, period, "full", "window"))
    return _gemma(config, defaults, post_norms=True, qk_norm=True, mixers=mixers)


def _gemma(config: Config, defaults: dict[str, int], **traits: Any) -> Architecture:
    bias = config.flag("attention_bias")
    width = config.maybe("sliding_window") if "mixers" in traits else None
    return decoder(
        config,
        defaults=defaults,
        qkv_bias=bias,
        output_bias=bias,
        tied_embeddings=config.flag("tie_word_embeddings", True),
        activation=config.text("hidden_activation", "hidden_act", default="gelu_pytorch_tanh"),
        window=width or (4096 if "mixers" in traits else None),
        **traits,
    )


FAMILIES = {
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "granite": llama,
    "internlm2": internlm2,
    "llama": llama,
    "mimo": qwen2,
    "mistral": mistral,
    "nemotron": nemotron,
    "olmo2": olmo2,
    "phi3": mistral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "smollm3": smollm3,
    "stablelm": stablelm,
}
