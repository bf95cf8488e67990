"""Recurrent layers between layers of attention.

Field names: `configuration_<family>.py` of Hugging Face transformers (https://github.com/huggingface/transformers).
"""

from __future__ import annotations

from rpeg.architecture.families.build import (
    assemble,
    decoder,
    every,
    experts_of,
    layer_count,
    mixers_of,
    sparse_steps,
)
from rpeg.architecture.families.config import Config
from rpeg.architecture.layers import FeedForward, Layer, Mixer, Recurrent
from rpeg.architecture.model import Architecture
from rpeg.errors import InputError

# letters of `hybrid_override_pattern`, words of `layers_block_type`
BLOCKS: dict[str, tuple[Mixer, FeedForward]] = {
    "M": ("recurrent", "none"),
    "*": ("full", "none"),
    "-": ("none", "dense"),
    "E": ("none", "moe"),
    "mamba": ("recurrent", "none"),
    "attention": ("full", "none"),
    "linear_attention": ("recurrent", "none"),
    "full_attention": ("full", "none"),
    "mlp": ("none", "dense"),
    "moe": ("none", "moe"),
}


def blocks(pattern: str | list[str], name: str) -> tuple[Layer, ...]:
    """The layers that a pattern of Nemotron-H names, by letters or by words."""
    for block in pattern:
        if block not in BLOCKS:
            raise InputError(f"the layer pattern of {name} has '{block}'; known are {', '.join(BLOCKS)}")
    return tuple(Layer(*BLOCKS[block]) for block in pattern)


def nemotron_h(config: Config) -> Architecture:
    """Nemotron-H (arXiv:2504.03624), Nemotron 3: each layer is one part, Mamba-2, attention, dense or experts."""
    words = config.items("layers_block_type")
    letters = config.get("hybrid_override_pattern")
    if words is None and not isinstance(letters, str):
        raise config.refuse("hybrid_override_pattern", "a pattern of M, *, - and E")
    layers = blocks(words if words is not None else letters, config.name)
    config.get("num_hidden_layers", "expand", "time_step_rank")  # follow from the pattern and the heads
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads")
    bias = config.flag("attention_bias")
    recurrent = Recurrent(
        heads=config.count("mamba_num_heads"),
        head_dim=config.count("mamba_head_dim"),
        state=config.count("ssm_state_size"),
        groups=config.count("n_groups", default=1),
        convolution=config.count("conv_kernel", default=4),
    )
    routed = any(layer.feed_forward == "moe" for layer in layers)
    shared = config.zero_or_more("moe_shared_expert_intermediate_size") * config.zero_or_more(
        "n_shared_experts"
    )
    latent = config.maybe("moe_latent_size")
    config.get("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
    return assemble(
        config,
        len(layers),
        [layer.mixer for layer in layers],
        [layer.feed_forward for layer in layers],
        hidden=hidden,
        heads=heads,
        kv_heads=config.count("num_key_value_heads", default=heads),
        head_dim=config.count("head_dim", "attention_head_dim", default=max(1, hidden // heads)),
        ffn=config.count("intermediate_size"),
        vocabulary=config.count("vocab_size"),
        context=config.count("max_position_embeddings"),
        tied_embeddings=config.flag("tie_word_embeddings"),
        activation=config.text("mlp_hidden_act", default="relu2"),
        gated=False,
        qkv_bias=bias,
        output_bias=bias,
        ffn_bias=config.flag("mlp_bias"),
        recurrent=recurrent,
        experts=experts_of(config, gated=False, shared_ffn=shared, latent=latent) if routed else None,
    )


def qwen3_next(config: Config) -> Architecture:
    """Qwen3-Next, Qwen3.5: gated delta-rule layers, every fourth one gated attention; dense or with experts."""
    layers = layer_count(config)
    period = config.count("full_attention_interval", default=4)
    heads, keys = config.count("linear_num_value_heads"), config.count("linear_num_key_heads")
    recurrent = Recurrent(
        heads=heads,
        head_dim=config.count("linear_value_head_dim"),
        state=config.count("linear_key_head_dim"),
        groups=keys,
        convolution=config.count("linear_conv_kernel_dim", default=4),
        kind="delta",
    )
    bias = config.flag("attention_bias")
    routed = config.maybe("num_experts") is not None
    shared = config.zero_or_more("shared_expert_intermediate_size")
    feeds = sparse_steps(config)
    width = (
        {"ffn": config.count("moe_intermediate_size")}
        if routed and not config.maybe("intermediate_size")
        else {}
    )
    return decoder(
        config,
        mixers=mixers_of(config, every(layers, period, "full", "recurrent")),
        feeds=feeds if routed else None,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        output_gate=config.flag("attn_output_gate", True),
        recurrent=recurrent,
        experts=experts_of(config, shared_ffn=shared, shared_gate=True) if routed else None,
        defaults={"head_dim": 256},
        **width,
    )


FAMILIES = {
    "nemotron_h": nemotron_h,
    "qwen3_5_moe_text": qwen3_next,
    "qwen3_5_text": qwen3_next,
    "qwen3_next": qwen3_next,
}
