"""Loading, heads, saving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training_cases import tiny_model
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaForCausalLM,
    LlamaModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from rpeg.backends import models
from rpeg.backends.models import PolicyModel, Wanted, load_model
from rpeg.backends.weights import canary_logprobs, canary_tokens
from rpeg.errors import InputError


@pytest.mark.parametrize("heads", [("lm",), ("value",), ("lm", "value")])
@pytest.mark.parametrize("tied", [True, False])
def test_saves_and_loads(tmp_path: Path, heads: tuple[str, ...], tied: bool) -> None:
    model = tiny_model(heads, tied=tied, dtype=torch.float32)
    model.save(str(tmp_path))
    assert {p.suffix for p in tmp_path.iterdir()} == {".json", ".safetensors"}
    again = load_model(str(tmp_path), heads=heads, dtype=torch.float32, seed=77)
    for (name, a), (other, b) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(a, b), name
    assert not again.training


def test_critic_from_a_language_model_drops_its_head(tmp_path: Path) -> None:
    actor = tiny_model(tied=False, dtype=torch.float32)
    actor.save(str(tmp_path))
    critic = load_model(str(tmp_path), heads=("value",), dtype=torch.float32, seed=3)
    assert type(critic.hf) is LlamaModel
    assert type(actor.hf) is LlamaForCausalLM
    assert torch.equal(critic.hf.layers[1].mlp.up_proj.weight, actor.hf.model.layers[1].mlp.up_proj.weight)
    assert critic.value_head.weight.abs().max() < 1
    assert not any("lm_head" in name for name, _ in critic.named_parameters())


def test_value_head_is_the_seed_s() -> None:
    head = [
        tiny_model(("value",), seed=0, dtype=d).value_head.weight.float()
        for d in (torch.float32, torch.float64)
    ]
    assert torch.equal(*head)
    model = tiny_model(("value",), seed=0)
    assert not torch.equal(
        PolicyModel(model.hf, ("value",), seed=1).value_head.weight, model.value_head.weight
    )


SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}


@pytest.mark.parametrize(
    "hf",
    [
        lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
        lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, head_dim=4, final_logit_softcapping=3.0)),
        lambda: CohereForCausalLM(CohereConfig(**SMALL, logit_scale=0.3)),
        lambda: GraniteForCausalLM(GraniteConfig(**SMALL, logits_scaling=5.0)),
    ],
    ids=["qwen2", "gemma2", "cohere", "granite"],
)
def test_logits_are_the_architecture_s(hf: object) -> None:
    module = hf().double().eval()  # type: ignore[operator]
    model = PolicyModel(module, ("lm",))
    tokens = canary_tokens(50, 12)
    assert canary_logprobs(model, tokens) == pytest.approx(canary_logprobs(module, tokens), abs=1e-10)
    assert len(model.layers()) == 2


def test_an_architecture_that_treats_logits_otherwise_is_refused() -> None:
    hf = tiny_model().hf
    original = hf.forward

    def doubled(**inputs: object) -> object:
        out = original(**inputs)
        out.logits = out.logits * 2
        return out

    hf.forward = doubled
    with pytest.raises(InputError, match="treats its logits"):
        PolicyModel(hf, ("lm",))


def test_forward_gives_only_what_is_wanted() -> None:
    model = tiny_model(("lm", "value"))
    tokens, index, targets = torch.tensor([[1, 2, 3]]), torch.tensor([0, 1]), torch.tensor([2, 3])
    assert set(model(tokens, index, targets, Wanted(values=True))) == {"new_values"}
    out = model(tokens, index, targets, Wanted(logprobs=True, entropy=True))
    assert set(out) == {"logprobs", "entropy"}
    everything = model.hf(input_ids=tokens).logits[0, :2].log_softmax(-1)
    assert torch.allclose(out["entropy"], -(everything.exp() * everything).sum(-1))


def test_wrong_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'value'"):
        load_model(str(tmp_path), heads=("valu",), dtype=torch.float32)
    with pytest.raises(InputError, match="needs a head"):
        load_model(str(tmp_path), heads=(), dtype=torch.float32)
    with pytest.raises(InputError, match="cannot load a model"):
        load_model(str(tmp_path), heads=("lm",), dtype=torch.float32)
    model = tiny_model()
    with pytest.raises(ValueError, match="temperature"):
        model(
            torch.ones(1, 2, dtype=torch.long),
            torch.tensor([0]),
            torch.tensor([1]),
            Wanted(True, temperature=0),
        )


def test_gguf_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def fake(directory: str, **options: object) -> PolicyModel:
        loads.append((directory, options["gguf_file"]))
        return tiny_model(dtype=torch.float32)

    monkeypatch.setattr(models, "load_model", fake)
    for _ in range(2):
        models.convert_gguf("somewhere", "tiny.gguf", str(tmp_path / "converted"))
    assert loads == [("somewhere", "tiny.gguf")]
    assert [p.name for p in tmp_path.iterdir()] == ["converted"]
    again = load_model(str(tmp_path / "converted"), heads=("lm",), dtype=torch.float32)
    assert torch.equal(again.hf.lm_head.weight, tiny_model(dtype=torch.float32).hf.lm_head.weight)
