"""Small models, samples and losses that the training tests share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

from rpeg.backends.models import PolicyModel
from rpeg.backends.samples import Samples

VOCABULARY = 61


def tiny_model(
    heads: tuple[str, ...] = ("lm",),
    *,
    tied: bool = True,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    vocabulary: int = VOCABULARY,
    hidden: int = 16,
    layers: int = 2,
) -> PolicyModel:
    """Llama layers, two of 16 hidden units unless asked otherwise."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=hidden * 3 // 2,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        attn_implementation="sdpa",
    )
    kind = LlamaForCausalLM if "lm" in heads else LlamaModel
    return PolicyModel(kind(config).to(dtype), heads, seed=seed).eval()


def tiny_mixture(heads: tuple[str, ...] = ("lm", "value"), *, seed: int = 0) -> PolicyModel:
    """Two Qwen3-MoE layers of four experts, two a token."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(seed)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        moe_intermediate_size=12,
        num_experts=4,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
        attn_implementation="sdpa",
    )
    model = Qwen3MoeForCausalLM(config).to(torch.float64)
    for (
        layer
    ) in model.model.layers:  # Hugging Face begins routers at zero: every token would choose the same experts
        torch.nn.init.normal_(layer.mlp.gate.weight, std=0.3)
    return PolicyModel(model, heads, seed=seed).eval()


def make_samples(n: int, *, seed: int = 0, longest: int = 9) -> Samples:
    """Ragged random samples with two columns."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, n)
    prompt_lengths = rng.integers(1, 6, n)
    total = int(lengths.sum())
    return Samples(
        np.arange(n) + 100 * seed,
        lengths,
        {"advantages": rng.normal(size=total), "returns": rng.normal(size=total)},
        {"rewards": rng.normal(size=n)},
        rng.integers(2, VOCABULARY, int(prompt_lengths.sum())),
        prompt_lengths,
        rng.integers(2, VOCABULARY, total),
    )


@dataclass(frozen=True)
class Out:
    loss: Tensor
    metrics: dict[str, Tensor] = field(default_factory=dict)


def weighted_nll(columns: Mapping[str, Tensor], mask: Tensor) -> Out:
    """A loss that uses every output and column."""
    loss = -columns["logprobs"] * columns["advantages"]
    if "entropy" in columns:
        loss = loss - 0.01 * columns["entropy"]
    if "new_values" in columns:
        loss = loss + 0.5 * (columns["new_values"] - columns["returns"]) ** 2
    return Out(loss, {"nll": -columns["logprobs"]})
