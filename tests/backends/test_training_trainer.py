"""The trainer on one process: conventions, and gradients against a plain autograd reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from training_cases import Out, make_samples, tiny_model, weighted_nll

from rpeg.backends.headed import named_parameters
from rpeg.backends.models import Wanted
from rpeg.backends.samples import Samples
from rpeg.backends.training import checkpoint
from rpeg.backends.training.microbatch import split
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.tally import Tally
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import InputError

SGD_LIKE = OptimizerConfig(lr=1e-3, max_grad_norm=None)


def reference_logprobs(model, samples: Samples, temperature: float) -> list[Tensor]:
    """Sample by sample through the Hugging Face module, without padding."""
    out, p, r = [], 0, 0
    for prompt_length, length in zip(samples.prompt_lengths, samples.lengths, strict=True):
        prompt, response = samples.prompts[p : p + prompt_length], samples.responses[r : r + length]
        p, r = p + prompt_length, r + length
        row = torch.from_numpy(np.concatenate([prompt, response]))
        logits = model.hf(input_ids=row[None]).logits[0] / temperature
        at = torch.arange(prompt_length - 1, prompt_length + length - 1)
        out.append(logits.log_softmax(-1)[at, torch.from_numpy(response)])
    return out


@pytest.mark.parametrize("microbatch", [1, 3, 100])
@pytest.mark.parametrize("chunk", [None, 7])
def test_logprobs_are_those_of_the_hugging_face_module(microbatch: int, chunk: int | None) -> None:
    model, samples = tiny_model(), make_samples(11, seed=3)
    expected = torch.cat(reference_logprobs(model, samples, 0.7)).detach().numpy()
    got = Trainer(model, logit_chunk=chunk).logprobs(samples, temperature=0.7, microbatch=microbatch)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)


def test_trains_exactly_the_response_tokens_and_the_end() -> None:
    """A 3-token response: its gradient is that of its three tokens, the end included, and of no others."""
    model = tiny_model()
    samples = Samples(
        np.array([5]),
        np.array([3]),
        prompts=np.array([4, 9, 2, 7]),
        prompt_lengths=np.array([4]),
        responses=np.array([11, 12, 1]),
    )
    factors = torch.tensor([[2.0, 3.0, 5.0]], dtype=torch.float64)
    chosen = reference_logprobs(model, samples, 1.0)[0]
    (expected,) = torch.autograd.grad(-(chosen * factors[0]).sum(), model.hf.lm_head.weight)

    trainer = Trainer(model, optimizer=SGD_LIKE)
    rows = split(samples, 4)
    weighted = samples.with_columns(sample={"_token_weight": np.ones(1)})
    trainer.passes.train(
        [trainer.batching.one(weighted, rows, 0)],
        lambda columns, mask: Out(-columns["logprobs"] * factors),
        Wanted(logprobs=True),
        Tally(),
    )
    assert torch.allclose(model.hf.lm_head.weight.grad, expected, rtol=0, atol=1e-12)


def test_values_belong_to_the_state_before_each_token() -> None:
    model, samples = tiny_model(heads=("value",)), make_samples(4, seed=1)
    got = Trainer(model).values(samples, microbatch=2)
    start, length = int(samples.prompt_lengths[0]), int(samples.lengths[0])
    row = torch.from_numpy(np.concatenate([samples.prompts[:start], samples.responses[:length]]))
    hidden = model.hf(input_ids=row[None]).last_hidden_state[0]
    expected = model.value_head(hidden[start - 1 : start - 1 + length])[:, 0].detach().numpy()
    np.testing.assert_allclose(got[:length], expected, rtol=0, atol=1e-12)


def test_shared_model_gives_both_in_one_forward() -> None:
    trainer, samples = Trainer(tiny_model(heads=("lm", "value"))), make_samples(5, seed=2)
    both = trainer.logprobs_and_values(samples, temperature=1.0, microbatch=2)
    np.testing.assert_array_equal(both["logprobs"], trainer.logprobs(samples, temperature=1.0, microbatch=2))
    np.testing.assert_array_equal(both["values"], trainer.values(samples, microbatch=2))


@pytest.mark.parametrize("scale", [1.0, 0.25, 0.0])
def test_value_gradient_scale_is_for_the_backbone_alone(scale: float) -> None:
    """Values and their head's gradient stay; what reaches the backbone is the policy's, and `scale` times the values'."""

    def gradients(policy: float, value: float, scale: float) -> tuple[dict[str, Tensor], Tensor]:
        model = tiny_model(heads=("lm", "value"))
        trainer = Trainer(model, optimizer=SGD_LIKE)
        micro = trainer.batching.one(make_samples(4, seed=2), [np.arange(4)], 0)
        out = trainer.passes.forward(micro, Wanted(True, values=True, value_gradient_scale=scale)).out
        (policy * out["logprobs"].sum() + value * out["new_values"].square().sum()).backward()
        return {name: p.grad.clone() for name, p in named_parameters(model)}, out["new_values"].detach()

    both, values = gradients(1.0, 1.0, scale)
    (policy, unscaled), (value, _) = gradients(1.0, 0.0, 1.0), gradients(0.0, 1.0, 1.0)
    assert torch.equal(values, unscaled)
    assert any(grad.abs().max() > 1e-3 for name, grad in value.items() if "value_head" not in name)
    for name, grad in both.items():
        expected = policy[name] + (1.0 if "value_head" in name else scale) * value[name]
        torch.testing.assert_close(grad, expected, rtol=1e-4, atol=1e-5)  # its norms are in float32


@pytest.mark.parametrize(
    "options",
    [{"logit_chunk": 5}, {"recompute": "full"}, {"recompute": "selective"}, {"tokens_per_sample": 8}],
)
def test_chunks_recompute_and_packing_change_nothing(options: dict) -> None:
    samples, weights = make_samples(9, seed=4), [np.full(9, 1 / 9)]
    trained = []
    for choice in ({}, options):
        trainer = Trainer(tiny_model(heads=("lm", "value")), optimizer=SGD_LIKE, **choice)
        metrics = trainer.train([samples], weights, weighted_nll, microbatch=4, entropy=True)
        trained.append((metrics, trainer.publish(1)))
    assert trained[0][0] == pytest.approx(trained[1][0], rel=0, abs=1e-10)
    for name, tensor in trained[0][1].tensors().items():
        assert torch.allclose(tensor, trained[1][1].tensors()[name], rtol=0, atol=1e-9), name


def test_matches_torch_adamw_and_is_the_same_for_every_microbatch() -> None:
    samples = [make_samples(6, seed=5), make_samples(5, seed=6)]
    weights = [
        np.full(6, 1 / s.lengths.sum()) if i == 0 else 1 / (5 * s.lengths) for i, s in enumerate(samples)
    ]
    config = OptimizerConfig(lr=1e-2, weight_decay=0.1, warmup_steps=3, max_grad_norm=0.5)
    model = tiny_model()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    for step in range(2):
        chosen = reference_logprobs(model, samples[step], 1.0)
        loss = sum(-(c * w).sum() for c, w in zip(chosen, weights[step], strict=True))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.param_groups[0]["lr"] = 1e-2 * (step + 1) / 3
        optimizer.step()
    expected = dict(model.hf.named_parameters())
    for microbatch in (2, 50):
        trainer = Trainer(tiny_model(), optimizer=config)
        nll = lambda columns, mask: Out(-columns["logprobs"])  # noqa: E731
        metrics = trainer.train(samples, weights, nll, microbatch=microbatch)
        assert metrics["applied"] == 2
        for name, parameter in trainer.model.hf.named_parameters():
            # torch divides by the norm + 1e-6 when it clips.
            assert torch.allclose(parameter, expected[name], rtol=0, atol=1e-7), name


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    trainer, samples = Trainer(tiny_model(), optimizer=SGD_LIKE), make_samples(4, seed=7)
    before = trainer.publish(0).digest
    metrics = trainer.train(
        [samples],
        [np.ones(4)],
        lambda columns, mask: Out(columns["logprobs"] * float("inf")),
        microbatch=2,
    )
    assert (metrics["skipped"], metrics["applied"]) == (1, 0)
    assert (trainer.skipped, trainer.updates) == (1, 0)
    assert trainer.publish(1).digest == before
    assert trainer.train([samples], [np.ones(4)], weighted_nll, microbatch=2)["applied"] == 1


def test_what_lies_outside_the_mask_has_no_influence() -> None:
    samples = make_samples(6, seed=8)
    results = []
    for poison in (0.0, float("nan")):

        def loss(columns: dict, mask: Tensor, poison: float = poison) -> Out:
            spoiled = torch.where(mask, -columns["logprobs"], poison)
            return Out(spoiled, {"m": spoiled})

        trainer = Trainer(tiny_model(), optimizer=SGD_LIKE)
        metrics = trainer.train([samples], [np.full(6, 0.1)], loss, microbatch=6)
        results.append((metrics, trainer.publish(1).digest))
    assert results[0] == results[1]


def test_metrics_are_means_over_response_tokens() -> None:
    samples = make_samples(5, seed=9).with_columns(
        token={"old_logprobs": np.arange(make_samples(5, seed=9).lengths.sum(), dtype=np.float64)}
    )
    trainer = Trainer(tiny_model(), optimizer=SGD_LIKE)
    metrics = trainer.train(
        [samples],
        [np.ones(5)],
        lambda columns, mask: Out(columns["logprobs"] * 0, {"old": columns["old_logprobs"]}),
        microbatch=2,
    )
    assert metrics["old"] == pytest.approx(samples.token["old_logprobs"].mean())
    assert metrics["tokens"] == samples.lengths.sum()


def test_state_round_trips_and_continues_equally(tmp_path) -> None:
    config = OptimizerConfig(lr=1e-2, warmup_steps=4)
    first, samples = Trainer(tiny_model(), optimizer=config), make_samples(6, seed=10)
    first.train([samples], [np.full(6, 0.1)], weighted_nll, microbatch=3)
    first.state(str(tmp_path / "state"))
    first.state(str(tmp_path / "state"))  # replaces what is there
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state"]
    second = Trainer(tiny_model(seed=99), optimizer=config)
    second.load_state(str(tmp_path / "state"))
    for trainer in (first, second):
        trainer.train([samples], [np.full(6, 0.1)], weighted_nll, microbatch=3)
    assert first.publish(2).digest == second.publish(2).digest
    assert (second.updates, second.skipped) == (2, 0)


def test_state_of_another_model_is_refused(tmp_path) -> None:
    Trainer(tiny_model(), optimizer=SGD_LIKE).state(str(tmp_path / "state"))
    with pytest.raises(InputError, match=r"value_head\.bias is missing in the file"):
        Trainer(tiny_model(heads=("lm", "value")), optimizer=SGD_LIKE).load_state(str(tmp_path / "state"))
    with pytest.raises(InputError, match="no usable trainer state"):
        Trainer(tiny_model()).load_state(str(tmp_path / "nothing"))


def test_a_failed_write_leaves_the_old_state(tmp_path, monkeypatch) -> None:
    trainer = Trainer(tiny_model())
    trainer.state(str(tmp_path / "state"))
    before = (tmp_path / "state" / "weights.safetensors").read_bytes()

    def fail(*_args: object, **_options: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint, "save_file", fail)
    with pytest.raises(Exception, match="disk full"):
        trainer.state(str(tmp_path / "state"))
    assert (tmp_path / "state" / "weights.safetensors").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_empty_share_and_empty_responses() -> None:
    trainer = Trainer(tiny_model(heads=("lm", "value")))
    samples = make_samples(4, seed=11)
    assert trainer.logprobs(samples.rows([]), temperature=1.0, microbatch=2).shape == (0,)
    silent = Samples(
        np.arange(2),
        np.array([0, 2]),
        prompts=np.array([3, 4, 5]),
        prompt_lengths=np.array([2, 1]),
        responses=np.array([6, 1]),
    )
    assert trainer.values(silent, microbatch=2).shape == (2,)
    with pytest.raises(ValueError, match="empty prompt"):
        trainer.values(
            Samples(
                np.arange(1),
                np.ones(1, int),
                prompts=np.zeros(0, int),
                prompt_lengths=np.zeros(1, int),
                responses=np.ones(1, int),
            ),
            microbatch=1,
        )
