"""Random Llamas that generation is tested with."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, LlamaConfig


def random_llama(
    vocabulary: int,
    *,
    hidden: int = 32,
    heads: int = 2,
    tied: bool = False,
    scale: float = 4.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> torch.nn.Module:
    """Two layers, 64 positions, no special tokens. scale: of all parameters, so that logits are far from uniform."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=hidden * 3 // 2,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    module: torch.nn.Module = AutoModelForCausalLM.from_config(config).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(scale)
    return module.eval()
