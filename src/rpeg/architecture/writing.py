"""Hugging Face configs of architectures: the way back."""

from __future__ import annotations

from typing import Any

from rpeg.architecture.model import Architecture


def to_config(architecture: Architecture) -> dict[str, Any]:
    """A Hugging Face config of this shape: `from_config` reads the same architecture back.

    It describes shapes alone: what `Architecture` does not know (rotary bases, tokens) keeps its default.
    """
    a = architecture
    if a.family == "gpt2":
        return {
            "model_type": "gpt2",
            "n_embd": a.hidden,
            "n_head": a.heads,
            "n_layer": a.layers,
            "n_inner": a.ffn,
            "n_positions": a.context,
            "vocab_size": a.vocabulary,
            "tie_word_embeddings": a.tied_embeddings,
            "activation_function": a.activation,
        }
    return {
        "model_type": a.family,
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
        "attention_bias": a.output_bias,
        "mlp_bias": a.ffn_bias,
        "sliding_window": a.window,
        "use_sliding_window": a.window is not None,
    }
