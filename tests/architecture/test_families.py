"""Every family against the model that transformers makes of the same config, without weights."""

from __future__ import annotations

from typing import Any

import pytest

from rpeg.architecture import Architecture, config_notes, from_config, to_config
from rpeg.architecture.families import FAMILIES
from rpeg.errors import InputError

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
WIDE = {**SHAPE, "head_dim": 16}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
ROUTED = {
    **MOE,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
LATENT = {
    **{key: value for key, value in SHAPE.items() if key != "num_key_value_heads"},
    "q_lora_rank": 20,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
}
INDEX = {"index_topk": 8, "index_n_heads": 4, "index_head_dim": 12}
DELTA = {
    **WIDE,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_value_head_dim": 8,
    "linear_key_head_dim": 12,
}
SHARED = {"num_experts": 4, "shared_expert_intermediate_size": 40, **MOE}
HYBRID = {
    **{key: value for key, value in WIDE.items() if key != "num_hidden_layers"},
    "hybrid_override_pattern": "ME*-ME",
    "mamba_num_heads": 4,
    "mamba_head_dim": 8,
    "ssm_state_size": 12,
    "n_groups": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 40,
    "moe_latent_size": None,
    **MOE,
}
FALCON = {"vocab_size": 300, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}
GPT = {"vocab_size": 300, "n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 64}
OPT = {"max_position_embeddings": 64, "ffn_dim": 80, "word_embed_proj_dim": 48}

CONFIGS: dict[str, dict[str, Any]] = {
    "bloom": {"vocab_size": 300, "hidden_size": 48, "n_layer": 3, "n_head": 6},
    "deepseek_v2": {**LATENT, **ROUTED, "q_lora_rank": None},
    "deepseek_v3": {**LATENT, **ROUTED},
    "deepseek_v32": {**LATENT, **ROUTED, **INDEX},
    "falcon": FALCON,
    "falcon:grouped": {**FALCON, "num_kv_heads": 2, "new_decoder_architecture": True},
    "falcon:sequential": {**FALCON, "multi_query": False, "parallel_attn": False, "bias": True},
    "gemma": WIDE,
    "gemma2": {**WIDE, "sliding_window": 16},
    "gemma3_text": {**WIDE, "sliding_window": 16},
    "glm4_moe": {**WIDE, **ROUTED, "use_qk_norm": True, "attention_bias": True},
    "glm4_moe_lite": {**LATENT, **ROUTED},
    "glm_moe_dsa": {**LATENT, **ROUTED, **INDEX},
    "gpt_neox": {key: value for key, value in SHAPE.items() if key != "num_key_value_heads"},
    "gpt_oss": {**WIDE, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
    "gptj": {**GPT, "rotary_dim": 4},
    "granite": SHAPE,
    "llama4_text": {
        **WIDE,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 96,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 16,
    },
    "minimax_m2": {**WIDE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {**SHAPE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "mpt": {"vocab_size": 300, "d_model": 48, "n_heads": 4, "n_layers": 3, "max_seq_len": 64},
    "nemotron": SHAPE,
    "nemotron_h": HYBRID,
    "nemotron_h:latent-experts": {**HYBRID, "moe_latent_size": 20},
    "olmo2": SHAPE,
    "opt": {**FALCON, **OPT},
    "phi": SHAPE,
    "phi3": {**SHAPE},
    "qwen2:windowed": {**SHAPE, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 2},
    "qwen2_moe": {**SHAPE, **SHARED},
    "qwen3_5_moe_text": {**DELTA, **SHARED},
    "qwen3_5_text": DELTA,
    "qwen3_moe": {**WIDE, **MOE, "num_experts": 4},
    "qwen3_moe:some-dense": {
        **WIDE,
        **MOE,
        "num_experts": 4,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
    },
    "qwen3_next": {**DELTA, **SHARED},
    "smollm3": {**SHAPE},
    "stablelm": {**SHAPE, "use_qkv_bias": True},
    "stablelm:parallel": {**SHAPE, "use_parallel_residual": True},
}


def minimal(label: str) -> dict[str, Any]:
    return {"model_type": label.split(":")[0], **CONFIGS[label]}


def hugging_face(config: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The config as transformers completes it, and the parameters of its model."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    fields = {key: value for key, value in config.items() if key != "model_type"}
    fields["pad_token_id"] = 0  # some defaults lie outside so small a vocabulary
    whole = transformers.AutoConfig.for_model(config["model_type"], **fields)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(whole)
    return whole.to_dict(), sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("label", CONFIGS)
def test_counts_and_reading_equal_those_of_transformers(label: str) -> None:
    architecture = from_config(minimal(label), "m")
    completed, parameters = hugging_face(minimal(label))
    assert architecture.parameters() == parameters
    assert from_config(completed, "m") == architecture


@pytest.mark.parametrize("label", CONFIGS)
def test_what_is_written_makes_the_same_model(label: str) -> None:
    architecture = from_config(minimal(label), "m")
    assert from_config(to_config(architecture), "m") == architecture
    assert hugging_face(to_config(architecture))[1] == architecture.parameters()


@pytest.mark.parametrize("label", CONFIGS)
def test_json_keeps_every_family(label: str) -> None:
    architecture = from_config(minimal(label), "m")
    assert Architecture.from_json(architecture.to_json()) == architecture


def test_layers_come_in_the_order_of_the_config() -> None:
    kinds = {
        label: "".join(layer.mixer[0] for layer in from_config(minimal(label)).pattern)
        for label in ("gemma2", "gemma3_text", "gpt_oss", "qwen2:windowed", "qwen3_next", "llama4_text")
    }
    assert kinds == {
        "gemma2": "wfwfwf",
        "gemma3_text": "wwwwwf",
        "gpt_oss": "wfwfwf",
        "qwen2:windowed": "ffwwww",
        "qwen3_next": "rrrfrr",
        "llama4_text": "wwwfww",
    }
    feeds = [layer.feed_forward for layer in from_config(minimal("deepseek_v3")).pattern]
    assert feeds == ["dense", "moe", "moe", "moe", "moe", "moe"]


def test_the_language_model_inside_another_is_read() -> None:
    inner = {key: value for key, value in minimal("gemma3_text").items() if key != "model_type"}
    outer = {"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 9}}
    assert from_config(outer, "m") == from_config({"model_type": "gemma3_text", **inner}, "m")
    assert "alone is counted" in config_notes(outer, "m")[0]
    with pytest.raises(InputError, match="model_type 'gema3_text'"):
        from_config({**outer, "model_type": "gema3"})


@pytest.mark.parametrize(
    ("label", "field", "value"),
    [
        ("granite", "num_local_experts", 8),
        ("gemma", "kv_lora_rank", 512),
        ("mixtral", "layer_types", ["linear_attention"] * 6),
        ("nemotron", "sliding_window", 16),
        ("qwen3_moe", "n_shared_experts", 1),
        ("gpt_oss", "compress_ratios", [4, 128]),
    ],
)
def test_a_field_that_shapes_and_has_no_place_is_refused(label: str, field: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"{field} = .*not known for model_type '{label}'"):
        from_config({**minimal(label), field: value}, "m")


def test_fields_that_may_matter_are_noted_and_harmless_ones_are_not() -> None:
    config = {
        **minimal("granite"),
        "rope_theta": 1e6,
        "torch_dtype": "bfloat16",
        "embedding_multiplier": 12.0,
    }
    assert config_notes(config) == ()
    assert "grove_size = 3 is not known" in config_notes({**config, "grove_size": 3})[0]
    assert "not counted" in config_notes({**minimal("deepseek_v3"), "num_nextn_predict_layers": 1})[0]


@pytest.mark.parametrize(
    ("label", "change", "says"),
    [
        ("opt", {"word_embed_proj_dim": 24}, "hidden_size"),
        ("deepseek_v3", {"attention_bias": True}, "attention_bias"),
        ("nemotron_h", {"hybrid_override_pattern": "MX"}, "'X'"),
        ("gpt_oss", {"layer_types": ["sliding_attention"]}, "1 layer_types for 6 layers"),
        ("gemma2", {"layer_types": ["slidin_attention"] * 6}, "'sliding_attention'"),
        ("mixtral", {"num_experts_per_tok": 5}, "5 of 4 experts"),
        ("qwen3_next", {"linear_num_value_heads": 3}, "3 recurrent heads cannot share 2 groups"),
        ("glm4_moe", {"use_qk_norm": "yes"}, "true or false"),
    ],
)
def test_what_cannot_be_says_so(label: str, change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        from_config({**minimal(label), **change}, "m")


def test_every_family_is_compared_with_transformers() -> None:
    elsewhere = {"gpt2", "llama", "mistral", "qwen2", "qwen3"}  # test_architecture.py
    absent = {"internlm2", "kimi_k2", "mimo"}  # no model of transformers' own
    inside = {kind for kind in FAMILIES if "_vl_" in kind}
    assert set(FAMILIES) == {label.split(":")[0] for label in CONFIGS} | elsewhere | absent | inside


def test_a_family_without_a_place_for_a_part_is_not_written() -> None:
    import dataclasses

    plain = from_config(minimal("granite"), "m")
    with pytest.raises(InputError, match="no place for its qk_norm"):
        to_config(dataclasses.replace(plain, qk_norm=True))
    with pytest.raises(InputError, match=r"family 'lama'.*'llama'"):
        to_config(dataclasses.replace(plain, family="lama"))
