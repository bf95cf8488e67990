import json

import pytest

from rpeg.architecture import Architecture, from_config, read, to_config
from rpeg.errors import InputError

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
CONFIGS = {
    "llama": SHAPE,
    "llama-tied": {**SHAPE, "tie_word_embeddings": True},
    "llama-biased": {**SHAPE, "attention_bias": True, "mlp_bias": True},
    "llama-wide-heads": {**SHAPE, "head_dim": 32},
    "llama-multi-head": {**SHAPE, "num_key_value_heads": 6},
    "mistral": SHAPE,
    "qwen2": SHAPE,
    "qwen2-tied": {**SHAPE, "tie_word_embeddings": True},
    "qwen3": {**SHAPE, "head_dim": 16},
    "qwen3-default-head": SHAPE,
    "gpt2": {"vocab_size": 300, "n_embd": 48, "n_head": 4, "n_layer": 3, "n_positions": 64},
    "gpt2-inner": {
        "vocab_size": 300,
        "n_embd": 48,
        "n_head": 4,
        "n_layer": 1,
        "n_positions": 64,
        "n_inner": 100,
    },
}


def hugging_face(label: str):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    config = transformers.AutoConfig.for_model(label.split("-")[0], **CONFIGS[label])
    with torch.device("meta"):
        return config, transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("label", CONFIGS)
def test_counts_equal_those_of_the_real_model(label: str, tmp_path) -> None:
    config, model = hugging_face(label)
    config.save_pretrained(tmp_path)
    architecture = read(tmp_path)
    backbone = model.base_model
    layers = backbone.h if label.startswith("gpt2") else backbone.layers
    assert architecture.layer_parameters == sum(p.numel() for p in layers[0].parameters())
    assert architecture.parameters() == sum(p.numel() for p in model.parameters())
    assert (
        architecture.parameters("value")
        == sum(p.numel() for p in backbone.parameters()) + architecture.hidden + 1
    )


@pytest.mark.parametrize("label", ["llama", "qwen2", "qwen3", "gpt2"])
def test_minimal_configs_read_as_complete_ones(label: str) -> None:
    config, _ = hugging_face(label)
    minimal = {"model_type": label, **CONFIGS[label]}
    assert from_config(minimal, "m") == from_config(config.to_dict(), "m")


def test_parts_sum_to_the_whole() -> None:
    architecture = from_config({"model_type": "llama", **SHAPE})
    assert sum(architecture.parts().values()) == architecture.parameters()


def test_a_window_bounds_the_cache() -> None:
    whole = from_config({"model_type": "mistral", **SHAPE})
    windowed = from_config({"model_type": "mistral", **SHAPE, "sliding_window": 16})
    assert windowed.kv_elements(16) == whole.kv_elements(16)
    assert windowed.kv_elements(64) == whole.kv_elements(16)
    assert whole.kv_elements(10) == 2 * 3 * 2 * 8 * 10


def test_unknown_family_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"'lama'.*Did you mean 'llama'"):
        from_config({"model_type": "lama", **SHAPE})
    with pytest.raises(InputError, match="model_type"):
        from_config(SHAPE, "mine")


def test_missing_field_is_named() -> None:
    config = {"model_type": "llama", **SHAPE, "hiden_size": 48}
    del config["hidden_size"]
    with pytest.raises(InputError, match=r"mine lacks 'hidden_size'.*'hiden_size'"):
        from_config(config, "mine")


@pytest.mark.parametrize("value", [0, -1, 2.5, "48", True, None])
def test_values_that_cannot_be_are_shown(value: object) -> None:
    with pytest.raises(InputError, match="hidden_size"):
        from_config({"model_type": "llama", **SHAPE, "hidden_size": value}, "mine")


def test_heads_must_share_evenly() -> None:
    with pytest.raises(InputError, match="6 heads cannot share 4"):
        from_config({"model_type": "llama", **SHAPE, "num_key_value_heads": 4})


def test_a_directory_without_config_says_what_a_model_is(tmp_path) -> None:
    with pytest.raises(InputError, match=r"config\.json does not exist"):
        read(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        read(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(InputError, match="object is needed"):
        read(tmp_path)


def test_json_round_trip() -> None:
    architecture = from_config({"model_type": "qwen3", **SHAPE}, "q")
    assert Architecture.from_json(json.loads(json.dumps(architecture.to_json()))) == architecture
    with pytest.raises(InputError, match="Did you mean 'layers'"):
        Architecture.from_json({**architecture.to_json(), "layer": 3})
    with pytest.raises(InputError, match="hidden"):
        Architecture.from_json({"name": "q", "family": "qwen3"})


@pytest.mark.parametrize("label", CONFIGS)
def test_a_config_of_the_same_shape_can_be_made_again(label: str) -> None:
    architecture = from_config({"model_type": label.split("-")[0], **CONFIGS[label]}, "m")
    assert from_config(to_config(architecture), "m") == architecture
