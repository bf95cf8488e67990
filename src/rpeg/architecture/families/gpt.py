"""The families around GPT: LayerNorm, a feed-forward part without gate.

Field names: `configuration_<family>.py` of Hugging Face transformers (https://github.com/huggingface/transformers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpeg.architecture.families.build import assemble, decoder, layer_count
from rpeg.architecture.families.config import Config
from rpeg.architecture.model import Architecture


def gpt2(config: Config) -> Architecture:
    """GPT-2: learned positions, biases everywhere."""
    return _gpt(config, learned_positions=True, qkv_bias=True, output_bias=True)


def gptj(config: Config) -> Architecture:
    """GPT-J: one norm for both parts, rotary positions, biases in the feed-forward part and the head."""
    return _gpt(config, shared_norm=True, head_bias=True, tied_embeddings=config.flag("tie_word_embeddings"))


def _gpt(config: Config, **traits: Any) -> Architecture:
    hidden, heads = config.count("n_embd", "hidden_size"), config.count("n_head", "num_attention_heads")
    fields: dict[str, Any] = {
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": max(1, hidden // heads),
        "ffn": config.count("n_inner", default=4 * hidden),
        "vocabulary": config.count("vocab_size"),
        "context": config.count("n_positions", "max_position_embeddings"),
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        "activation": config.text("activation_function", default="gelu_new"),
        "gated": False,
        "norm_bias": True,
        "ffn_bias": True,
    }
    return assemble(config, layer_count(config), **{**fields, **traits})


def gpt_neox(config: Config) -> Architecture:
    """GPT-NeoX, Pythia, StableLM-Alpha: rotary positions, biases everywhere but in the head."""
    bias = config.flag("attention_bias", True)
    return decoder(
        config,
        kv_heads=config.count("num_attention_heads"),
        gated=False,
        norm_bias=True,
        qkv_bias=bias,
        output_bias=bias,
        ffn_bias=True,
        activation=config.text("hidden_act", default="gelu"),
    )


def phi(config: Config) -> Architecture:
    """Phi-1, 1.5 and 2: one norm for both parts, biases everywhere."""
    if config.flag("qk_layernorm"):
        raise config.refuse("qk_layernorm", "false (norms with a bias on q and k are not described)")
    return decoder(
        config,
        gated=False,
        norm_bias=True,
        shared_norm=True,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
        head_bias=True,
        activation=config.text("hidden_act", default="gelu_new"),
    )


def opt(config: Config) -> Architecture:
    """OPT: learned positions with two spare rows, ReLU."""
    hidden, bias = config.count("hidden_size"), config.flag("enable_bias", True)
    if config.count("word_embed_proj_dim", default=hidden) != hidden:
        raise config.refuse(
            "word_embed_proj_dim", f"hidden_size ({hidden}; projected embeddings are not described)"
        )
    if not config.flag("do_layer_norm_before", True):
        raise config.refuse("do_layer_norm_before", "true (norms after the parts are not described)")
    return decoder(
        config,
        ffn=config.count("ffn_dim"),
        gated=False,
        norm_bias=config.flag("layer_norm_elementwise_affine", True),
        learned_positions=True,
        spare_positions=2,
        qkv_bias=bias,
        output_bias=bias,
        ffn_bias=bias,
        tied_embeddings=config.flag("tie_word_embeddings", True),
        activation=config.text("activation_function", default="relu"),
    )


def bloom(config: Config) -> Architecture:
    """BLOOM: positions by ALiBi (no table, no limit: `seq_length` is what it was trained on), a norm on the embedding."""
    hidden = config.count("hidden_size", "n_embed")
    heads = config.count("n_head", "num_attention_heads")
    return assemble(
        config,
        layer_count(config),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=max(1, hidden // heads),
        ffn=4 * hidden,
        vocabulary=config.count("vocab_size"),
        context=config.count("seq_length", default=2048),
        tied_embeddings=config.flag("tie_word_embeddings", True),
        activation="gelu",
        gated=False,
        norm_bias=True,
        embedding_norm=True,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
    )


def falcon(config: Config) -> Architecture:
    """Falcon: the 7B has one key head and one norm, the 40B and 180B grouped keys and a norm for each part."""
    hidden = config.count("hidden_size")
    heads = config.count("num_attention_heads", "n_head")
    grouped, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn", True)
    norms = config.count("num_ln_in_parallel_attn", default=2 if grouped else 1)
    single = config.flag("multi_query", True)
    kv_heads = config.count("num_kv_heads", "n_head_kv", default=heads)
    bias = config.flag("bias")
    return assemble(
        config,
        layer_count(config),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads if grouped else 1 if single else heads,
        head_dim=max(1, hidden // heads),
        ffn=config.count("ffn_hidden_size", default=4 * hidden),
        vocabulary=config.count("vocab_size"),
        context=config.count("max_position_embeddings", default=2048),
        tied_embeddings=config.flag("tie_word_embeddings", True),
        activation=config.text("activation", default="gelu"),
        gated=False,
        norm_bias=True,
        shared_norm=parallel and norms == 1,
        qkv_bias=bias,
        output_bias=bias,
        ffn_bias=bias,
    )


def mpt(config: Config) -> Architecture:
    """MPT: no biases (`no_bias` drops those of the norms too), positions by ALiBi or a table."""
    hidden, heads = config.count("d_model"), config.count("n_heads")
    attention = config.get("attn_config") or {}
    attention = Config(attention if isinstance(attention, Mapping) else {}, config.name)
    bias = not config.flag("no_bias", True)
    return assemble(
        config,
        layer_count(config),
        hidden=hidden,
        heads=heads,
        kv_heads=attention.count("kv_n_heads", default=heads),
        head_dim=max(1, hidden // heads),
        ffn=config.count("expansion_ratio", default=4) * hidden,
        vocabulary=config.count("vocab_size"),
        context=config.count("max_seq_len"),
        tied_embeddings=config.flag("tie_word_embeddings", True),
        activation="gelu",
        gated=False,
        norm_bias=bias,
        learned_positions=config.flag("learned_pos_emb", True) and not attention.flag("alibi", True),
        qkv_bias=bias,
        output_bias=bias,
        ffn_bias=bias,
    )


FAMILIES = {
    "bloom": bloom,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "mpt": mpt,
    "opt": opt,
    "phi": phi,
}
