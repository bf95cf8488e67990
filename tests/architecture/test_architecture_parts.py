"""Parts, caches and states add up, whatever the layers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.architecture import LAYER_PARTS, Architecture, Experts, Latent, Layer, Recurrent, named, names
from rpeg.errors import InputError

PLAIN = Architecture(
    name="m",
    family="llama",
    layers=4,
    hidden=32,
    heads=4,
    kv_heads=2,
    head_dim=8,
    ffn=64,
    vocabulary=100,
    context=512,
)
PARTS: dict[str, Any] = {
    "window": 16,
    "experts": Experts(8, 2, 16, shared_ffn=16),
    "latent": Latent(12, 8, 8, 4, 8),
    "recurrent": Recurrent(4, 8, 6, groups=2),
}
LAYERS = st.builds(
    Layer,
    st.sampled_from(["full", "window", "latent", "recurrent", "none"]),
    st.sampled_from(["dense", "moe", "none"]),
).filter(lambda layer: layer != Layer("none", "none"))
MODELS = st.lists(LAYERS, min_size=1, max_size=6).map(
    lambda layers: dataclasses.replace(PLAIN, layers=len(layers), pattern=tuple(layers), **PARTS)
)


@given(MODELS)
def test_groups_and_parts_add_up(model: Architecture) -> None:
    assert sum(count for _, count in model.groups) == model.layers
    layers = sum(count * sum(model.layer_parts(layer).values()) for layer, count in model.groups)
    around = model.embedding_parameters + model.final_norm_parameters + model.head_parameters()
    assert model.parameters() == layers + around == sum(model.parts().values())
    assert all(tuple(model.layer_parts(layer)) == LAYER_PARTS for layer, _ in model.groups)
    assert model.layer_parameters == layers // model.layers
    assert model.active_parameters <= model.parameters()


@given(MODELS, st.integers(0, 100), st.integers(0, 100))
def test_caches_grow_with_the_context(model: Architecture, context: int, more: int) -> None:
    assert model.kv_elements(context) <= model.kv_elements(context + more)
    windowed = sum(count for layer, count in model.groups if layer.mixer == "window")
    full = sum(count for layer, count in model.groups if layer.mixer == "full")
    latent = sum(count for layer, count in model.groups if layer.mixer == "latent")
    expected = 32 * (full * context + windowed * min(context, 16)) + latent * 12 * context
    assert model.kv_elements(context) == expected
    assert model.state_elements % PARTS["recurrent"].state_elements == 0


@given(MODELS)
def test_json_keeps_any_pattern(model: Architecture) -> None:
    again = Architecture.from_json(model.to_json())
    assert again == model
    assert hash(again) == hash(model)


def test_hashes_do_not_travel() -> None:
    """Python salts the hashes of texts in each process."""
    import pickle
    import subprocess
    import sys

    hash(PLAIN)
    code = "import pickle, sys; m = pickle.loads(sys.stdin.buffer.read()); print(hash(type(m)(**vars(m))) == hash(m))"
    told = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(PLAIN), capture_output=True, check=True
    )
    assert told.stdout.strip() == b"True"


def test_active_experts_are_counted_once_a_layer() -> None:
    model = dataclasses.replace(PLAIN, experts=Experts(8, 2, 16))
    expert = 3 * 32 * 16
    assert model.layer_parts(model.layer)["experts"] == 8 * expert
    assert model.parameters() - model.active_parameters == 4 * 6 * expert


def test_what_is_cached_of_known_models() -> None:
    """DeepSeek-V3: 576 numbers a token and layer (arXiv:2405.04434 section 2.1.4: 4.5 heads' worth)."""
    assert named("DeepSeek-V3").kv_elements(1) == 61 * 576
    assert named("Llama-3.1-8B").kv_elements(1) * 2 == 131072
    oss = named("gpt-oss-120b")
    assert oss.kv_elements(1000) == 2 * 8 * 64 * (18 * 1000 + 18 * 128)
    qwen = named("Qwen3.5-397B-A17B")
    assert qwen.kv_elements(1000) == 15 * 2 * 2 * 256 * 1000
    assert qwen.state_elements == 45 * (64 * 128 * 128 + (64 * 128 + 2 * 16 * 128) * 3)


@pytest.mark.parametrize("name", names())
def test_library_models_add_up(name: str) -> None:
    model = named(name)
    assert sum(model.parts().values()) == model.parameters() >= model.active_parameters
    assert sum(count for _, count in model.groups) == model.layers


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"kv_heads": 3}, "4 heads cannot share 3"),
        ({"window": 0}, "window is 0"),
        ({"pattern": (Layer(),)}, "pattern names 1 layers, layers is 4"),
        ({"pattern": (Layer("window"),) * 4}, "window layer, but window is not given"),
        ({"pattern": (Layer("full", "moe"),) * 4}, "moe layer, but experts is not given"),
        ({"pattern": (Layer("latent"),) * 4}, "latent is not given"),
        ({"pattern": (Layer("ful"),) * 4}, "'ful'.*'full'"),  # type: ignore[arg-type]
        ({"pattern": (Layer("none", "none"),) * 4}, "neither"),
        ({"experts": Experts(4, 5, 8)}, "5 of 4 experts"),
        ({"experts": Experts(4, 2, 0)}, "experts: ffn is 0"),
        ({"recurrent": Recurrent(3, 8, 4, groups=2)}, "3 recurrent heads cannot share 2"),
    ],
)
def test_impossible_shapes_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        dataclasses.replace(PLAIN, **change)


def test_json_names_what_it_does_not_know() -> None:
    data = dataclasses.replace(PLAIN, **PARTS).to_json()
    with pytest.raises(InputError, match=r"experts has no field 'cuont'.*'count'"):
        Architecture.from_json({**data, "experts": {"cuont": 3}})
    with pytest.raises(InputError, match="an object is needed"):
        Architecture.from_json({**data, "latent": 3})
    with pytest.raises(InputError, match="a list of layers"):
        Architecture.from_json({**data, "pattern": "MM"})
    with pytest.raises(InputError, match="count"):
        Architecture.from_json({**data, "experts": {"active": 3}})
