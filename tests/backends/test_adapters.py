"""Adapters: what they compute, what of a model is trained and sent beside them, and what is left when they are merged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import CONFIG, one_step
from training_cases import make_samples, tiny_mixture, tiny_model
from transformers import AutoModelForCausalLM

from rpeg.backends.adapters import Adapters, adapt, is_adapter, whole_parameters
from rpeg.backends.headed import named_parameters
from rpeg.backends.models import PolicyModel
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import InputError, RunError

FEW = Adapters(rank=3, scale=0.5)


def adapted(adapters: Adapters = FEW, heads: tuple[str, ...] = ("lm", "value")) -> PolicyModel:
    model = tiny_model(heads)
    adapt(model, adapters, seed=1)
    return model


@pytest.mark.parametrize(("targets", "beside"), [("all", 7), ("attention", 2)])
def test_adapters_stand_beside_the_matrices_of_the_layers(targets: str, beside: int) -> None:
    model = adapted(Adapters(3, 1.0, targets))  # type: ignore[arg-type]
    names = [name for name, _ in named_parameters(model)]
    assert sum(map(is_adapter, names)) == 2 * 2 * beside
    assert {n for n in names if n not in model.frozen and not is_adapter(n)} == {
        "value_head.weight",
        "value_head.bias",
    }
    assert "lm_head.weight" not in {n.rpartition(".lora")[0] for n in names}


def test_routers_and_stacked_experts_have_none() -> None:
    model = tiny_mixture()
    adapt(model, FEW, seed=1)
    beside = {n.rpartition(".")[0].rpartition(".")[2] for n, _ in named_parameters(model) if is_adapter(n)}
    assert beside == {"q_proj", "k_proj", "v_proj", "o_proj"}


def test_a_model_without_such_matrices_is_refused() -> None:
    model = tiny_model()
    for layer in model.layers():
        layer.self_attn.q_proj = layer.self_attn.v_proj = torch.nn.Identity()  # type: ignore[union-attr]
    with pytest.raises(InputError, match="targets attention finds no matrix"):
        adapt(model, Adapters(3, 1.0, "attention"), seed=1)


def test_before_an_update_and_without_adapters_it_is_the_model_that_it_was() -> None:
    samples = make_samples(4, seed=3)
    expected = Trainer(tiny_model(("lm", "value"))).logprobs(samples, temperature=1.0, microbatch=2)
    trainer = Trainer(adapted(), optimizer=CONFIG)

    def logprobs() -> np.ndarray:
        return trainer.logprobs(samples, temperature=1.0, microbatch=2)

    np.testing.assert_array_equal(logprobs(), expected)
    one_step(trainer, 0)
    moved = logprobs()
    assert np.abs(moved - expected).max() > 1e-3
    with trainer.without_adapters() as same:
        np.testing.assert_array_equal(same.logprobs(samples, temperature=1.0, microbatch=2), expected)
    np.testing.assert_array_equal(logprobs(), moved)


def test_what_is_trained_is_sent_and_nothing_else() -> None:
    """The audit of what travels: as many tensors as are trained, none of them frozen, and others after an update."""
    trainer, copy = Trainer(adapted(), optimizer=CONFIG), Trainer(adapted())
    trained = {name for name, p in named_parameters(trainer.model) if p.requires_grad}
    first = trainer.publish(0)
    assert {entry.name for entry in first.manifest.entries} == trained
    assert copy.receive([first]) == first.digest == trainer.digest()
    frozen = {n: p.clone() for n, p in named_parameters(trainer.model) if n in trainer.model.frozen}
    one_step(trainer, 0)
    second = trainer.publish(1)
    assert second.digest != first.digest
    assert not np.array_equal(second.flat, first.flat)
    assert copy.receive([second]) == second.digest
    for name, parameter in named_parameters(copy.model):
        if name in frozen:
            torch.testing.assert_close(parameter, frozen[name], rtol=0, atol=0)


def test_a_payload_of_the_frozen_model_is_refused() -> None:
    """What a framework once sent for two months: the base, and no adapter."""
    base, copy = Trainer(tiny_model(("lm", "value"))), Trainer(adapted())
    with pytest.raises(RunError, match="receive nothing"):
        copy.receive([base.publish(1)])


def test_moments_are_of_adapters_alone() -> None:
    trainer = Trainer(adapted(), optimizer=CONFIG)
    trained = sum(p.nbytes for n, p in named_parameters(trainer.model) if n not in trainer.model.frozen)
    assert (
        trained <= trainer.optimizer_bytes() / 2 < 1.3 * trained
    )  # padding between parameters of a few numbers


def test_a_merged_model_computes_the_same_with_the_librarys_own_modules(tmp_path: Path) -> None:
    trainer = Trainer(adapted(heads=("lm",)), optimizer=CONFIG)
    from training_cases import weighted_nll

    samples = make_samples(4, seed=3)
    weights = np.full(4, 1 / samples.lengths.sum())
    trainer.train([samples], [weights], weighted_nll, microbatch=2)
    trainer.save_model(str(tmp_path))
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    tokens = torch.arange(1, 12)[None]
    with torch.no_grad():
        expected = trainer.model.hf(input_ids=tokens).logits
        torch.testing.assert_close(plain(input_ids=tokens).logits, expected, rtol=0, atol=1e-9)
    ours = dict(whole_parameters(trainer.model.hf))
    for name, parameter in plain.named_parameters(remove_duplicate=False):
        torch.testing.assert_close(ours[name], parameter, rtol=0, atol=1e-12)


def test_a_state_of_adapters_goes_on(tmp_path: Path) -> None:
    one, other = Trainer(adapted(), optimizer=CONFIG), Trainer(adapted(), optimizer=CONFIG)
    one_step(one, 0)
    one.state(str(tmp_path / "state"))
    other.load_state(str(tmp_path / "state"))
    assert one.digest() == other.digest()
    assert one_step(one, 1) == one_step(other, 1)
