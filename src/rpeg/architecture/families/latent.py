"""Multi-head latent attention: DeepSeek-V2 and those after it.

Field names: `configuration_<family>.py` of Hugging Face transformers (https://github.com/huggingface/transformers).
"""

from __future__ import annotations

from rpeg.architecture.families.build import decoder, dense_first, experts_of
from rpeg.architecture.families.config import Config
from rpeg.architecture.layers import Latent
from rpeg.architecture.model import Architecture


def deepseek(config: Config) -> Architecture:
    """DeepSeek-V2, V3 (arXiv:2412.19437), Kimi-K2, Moonlight; with an index, V3.2 and GLM-5: dense first layers."""
    latent = Latent(
        q_rank=config.maybe("q_lora_rank"),
        kv_rank=config.count("kv_lora_rank"),
        nope_head_dim=config.count("qk_nope_head_dim"),
        rope_head_dim=config.count("qk_rope_head_dim"),
        value_head_dim=config.count("v_head_dim"),
        selected=config.maybe("index_topk"),
        index_heads=config.zero_or_more("index_n_heads"),
        index_head_dim=config.zero_or_more("index_head_dim"),
    )
    if config.flag("attention_bias"):
        raise config.refuse("attention_bias", "false (latent attention with biases is not described)")
    config.get("head_dim", "qk_head_dim", "num_key_value_heads", "layer_types")  # follow from the above
    heads = config.count("num_attention_heads")
    return decoder(
        config,
        kv_heads=heads,
        head_dim=latent.query_head_dim,
        latent=latent,
        experts=experts_of(config) if config.maybe("n_routed_experts") else None,
        feeds=dense_first(config) if config.maybe("n_routed_experts") else None,
    )


FAMILIES = dict.fromkeys(
    ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "kimi_k2"), deepseek
)
