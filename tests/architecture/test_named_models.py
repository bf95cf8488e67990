from __future__ import annotations

import pytest

from rpeg.architecture import Architecture, from_shape, library, named, names
from rpeg.errors import InputError

SPELLINGS = {
    "Llama-3.1-8B": [
        "meta-llama/Llama-3.1-8B-Instruct",
        "Llama 3.1 8B",
        "llama3.1-8b",
        "LLAMA3.1_8B_instruct",
    ],
    "Llama-3-70B": ["LLAMA3_70B", "Llama3 70B 2-node", "meta-llama/Meta-Llama-3-70B-Instruct"],
    "Llama-2-13B": ["Llama 2 13 B", "meta-llama/Llama-2-13b-chat-hf"],
    "CodeLlama-34B": ["Llama-2 34B"],
    "Qwen2.5-Math-7B": ["Qwen2.5-Math-7B", "Qwen/Qwen2.5-Math-7B-Instruct"],
    "Qwen3-30B-A3B": [
        "Qwen/Qwen3-30B-A3B",
        "Qwen3_30B_a3B (tokendrop)",
        "Qwen3-30B-A3B-Base",
        "Qwen3 MoE 30B",
    ],
    "Qwen3-235B-A22B": ["Qwen/Qwen3-235B-A22B-FP8", "Qwen3-235B-A22B-Instruct-2507 (BF16)"],
    "DeepSeek-V3": [
        "DeepSeekV3 (w/o MTP)",
        "deepseek-ai/DeepSeek-V3-0324",
        "DeepSeek-V3.1",
        "DeepSeek V3 671B",
    ],
    "DeepSeek-R1": ["nvidia/DeepSeek-R1-NVFP4", "deepseek-ai/DeepSeek-R1-0528"],
    "gpt-oss-120b": ["GPT OSS 120B", "openai/gpt-oss-120b"],
    "Mistral-7B": ["mistral-7b-v0.2", "mistralai/Mistral-7B-Instruct-v0.2"],
    "Mistral-7B-v0.1": ["mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-Instruct-v0.1"],
    "Gemma-2-2B": ["gemma-2-2b-it (actor, critic)"],
    "Phi-3-mini-4k": ["Phi-3-mini-4k-instruct"],
    "Kimi-K2.5": ["moonshotai/Kimi-K2.5"],
    "Nemotron-3-Super-120B-A12B": ["Nemotron_3_Super"],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str) -> None:
    for spelling in [name, *SPELLINGS[name]]:
        assert named(spelling).name == name, spelling


def test_each_name_finds_itself_and_has_a_source() -> None:
    assert len(names()) > 150
    for name in names():
        assert named(name).name == name
        assert library.source(name).startswith("https://")


def test_no_two_models_share_a_spelling() -> None:
    owners: dict[str, str] = {}
    for name in names():
        for text in library._written(name):
            assert owners.setdefault(library._reduced(text), name) == name, text


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("Lama-3.1-8B", "Llama-3.1-8B"), ("Qwen/Qwen3-31B", "Qwen3-32B"), ("gpt-os-20b", "gpt-oss-20b")],
)
def test_a_miss_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(InputError, match=rf"'{wrong}' is not known.*'{right}'"):
        named(wrong)


FLAT = {"name": "own", "layers": 4, "hidden": 64, "heads": 8, "kv_heads": 2, "ffn": 128, "vocab": 100}
MLA = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}


def test_flat_fields_describe_an_unknown_model() -> None:
    model = from_shape(FLAT)
    attention, feed_forward = 64 * (64 + 2 * 16) + 64 * 64, 3 * 64 * 128
    assert model.parameters() == 4 * (attention + feed_forward + 2 * 64) + 64 + 2 * 64 * 100
    gpt = from_shape({**FLAT, "gated_mlp": False, "learned_pos": True, "tied_embeddings": True}, context=32)
    biases = (64 + 2 * 16) + 64 + 128 + 64
    assert gpt.layer_parameters == attention + 2 * 64 * 128 + biases + 4 * 64
    assert gpt.embedding_parameters == 64 * (100 + 32)
    assert gpt.head_parameters() == 0


def test_flat_fields_of_experts_and_latents() -> None:
    shape = {
        **FLAT,
        **MLA,
        "n_experts": 8,
        "topk": 2,
        "moe_ffn": 32,
        "n_shared_experts": 2,
        "first_k_dense": 1,
    }
    model = from_shape(shape)
    assert [layer.feed_forward for layer in model.pattern] == ["dense", "moe", "moe", "moe"]
    assert model.experts is not None
    assert (model.experts.count, model.experts.active, model.experts.shared_ffn) == (8, 2, 64)
    assert model.kv_elements(10) == 4 * 10 * (16 + 4)
    listed = from_shape({**shape, "moe_layer_freq": "([0]*2+[1]*2)"})
    assert [layer.feed_forward for layer in listed.pattern] == ["dense", "dense", "moe", "moe"]
    with pytest.raises(InputError, match="lists 3 layers of 4"):
        from_shape({**shape, "moe_layer_freq": "([0]*2+[1])"})
    with pytest.raises(InputError, match="a form like"):
        from_shape({**shape, "moe_layer_freq": "(zero)"})


def test_a_known_name_completes_the_fields() -> None:
    flat = {
        "name": "openai/gpt-oss-120b",
        "layers": 36,
        "hidden": 2880,
        "heads": 64,
        "kv_heads": 8,
        "vocab": 201088,
    }
    model = from_shape(flat)
    assert (model.sinks, model.window, model.qkv_bias) == (True, 128, True)
    assert model.parameters() == named("gpt-oss-120b").parameters()
    short = from_shape({**flat, "layers": 5})
    assert [layer.mixer for layer in short.pattern] == ["window", "full", "window", "full", "window"]
    assert from_shape({"name": "Qwen3-8B"}).parameters() == named("Qwen3-8B").parameters()


def test_a_namesake_of_other_width_is_its_own_model() -> None:
    assert from_shape({**FLAT, "name": "Llama-3.1-8B"}).hidden == 64


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden": None}, "lacks 'hidden'"),
        ({"layres": 3}, "'layres'.*'layers'"),
        ({"vocab": 1.5}, "vocab = 1.5"),
        ({"hybrid_override_pattern": "M-M*"}, "recurrent layers whose shape is not told"),
        ({"q_lora_rank": 8}, "without kv_lora_rank"),
    ],
)
def test_flat_fields_that_cannot_be_used_are_named(change: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        from_shape({**FLAT, **change})


def test_shapes_are_values() -> None:
    first, second = named("Qwen3-30B-A3B"), from_shape({"name": "Qwen3-30B-A3B"})
    assert isinstance(first, Architecture)
    assert first == second
    assert hash(first) == hash(second)
