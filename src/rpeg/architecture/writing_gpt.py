"""Hugging Face configs of the families around GPT, which name their fields each in its own way."""

from __future__ import annotations

from typing import Any

from rpeg.architecture.model import Architecture


def _shape(a: Architecture) -> dict[str, Any]:
    return {"hidden_size": a.hidden, "num_attention_heads": a.heads, "num_hidden_layers": a.layers}


def gpt2(a: Architecture) -> dict[str, Any]:
    """GPT-2 and GPT-J."""
    return {
        "n_embd": a.hidden,
        "n_head": a.heads,
        "n_layer": a.layers,
        "n_inner": a.ffn,
        "n_positions": a.context,
        "vocab_size": a.vocabulary,
        "tie_word_embeddings": a.tied_embeddings,
        "activation_function": a.activation,
    }


def opt(a: Architecture) -> dict[str, Any]:
    """OPT."""
    config: dict[str, Any] = _shape(a)
    config |= {"vocab_size": a.vocabulary, "max_position_embeddings": a.context, "ffn_dim": a.ffn}
    config |= {"word_embed_proj_dim": a.hidden, "activation_function": a.activation}
    return {**config, "enable_bias": a.qkv_bias, "tie_word_embeddings": a.tied_embeddings}


def bloom(a: Architecture) -> dict[str, Any]:
    """BLOOM."""
    shape = {"hidden_size": a.hidden, "n_layer": a.layers, "n_head": a.heads, "vocab_size": a.vocabulary}
    return {**shape, "seq_length": a.context, "tie_word_embeddings": a.tied_embeddings}


def falcon(a: Architecture) -> dict[str, Any]:
    """Falcon: one key head, grouped ones, or one a head."""
    shape = _shape(a)
    shape |= {"vocab_size": a.vocabulary, "max_position_embeddings": a.context, "ffn_hidden_size": a.ffn}
    grouped = 1 < a.kv_heads < a.heads
    kind: dict[str, Any] = {
        "new_decoder_architecture": grouped,
        "multi_query": a.kv_heads == 1,
        "parallel_attn": True,
    }
    kind |= {"num_kv_heads": a.kv_heads, "bias": a.qkv_bias, "activation": a.activation}
    if not grouped:
        kind["parallel_attn"] = a.shared_norm
    return {**shape, **kind, "tie_word_embeddings": a.tied_embeddings}


def mpt(a: Architecture) -> dict[str, Any]:
    """MPT."""
    shape = {
        "d_model": a.hidden,
        "n_heads": a.heads,
        "n_layers": a.layers,
        "expansion_ratio": a.ffn // a.hidden,
    }
    shape |= {"vocab_size": a.vocabulary, "max_seq_len": a.context, "tie_word_embeddings": a.tied_embeddings}
    return {**shape, "no_bias": not a.qkv_bias, "attn_config": {"alibi": not a.learned_positions}}
