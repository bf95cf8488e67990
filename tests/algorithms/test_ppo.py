from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rpeg import algorithms, ir
from rpeg.algorithms import aggregation, kl, ppo
from rpeg.algorithms.loss import weighted_sum
from rpeg.errors import InputError

NAN = float("nan")
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]], dtype=torch.bool)
EVERYTHING = ppo.Hyper(
    kl_in="loss", kl_estimator="k3", kl_coefficient=0.1, entropy_coefficient=0.05, dual_clip=3.0
)


def columns(seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    names = ("logprobs", "old_logprobs", "ref_logprobs", "advantages", "entropy", "new_values", "values")
    made = {
        name: torch.randn(MASK.shape, generator=draw, dtype=torch.float64) for name in (*names, "returns")
    }
    return made | {"rewards": torch.randn(len(MASK), generator=draw, dtype=torch.float64)}


def poisoned(clean: dict[str, Tensor], mask: Tensor) -> dict[str, Tensor]:
    return {n: c.masked_fill(~mask, NAN) if c.dim() == 2 else c for n, c in clean.items()}


def padded(clean: dict[str, Tensor], width: int) -> dict[str, Tensor]:
    return {
        n: torch.nn.functional.pad(c, (0, width), value=NAN) if c.dim() == 2 else c for n, c in clean.items()
    }


def test_gae_by_hand_never_reads_past_the_end() -> None:
    mask = torch.tensor([[True, True, False]])
    made = {"token_rewards": torch.tensor([[0.0, 1, 0]]), "values": torch.tensor([[0.0, 0, 100]])}
    found = ppo.gae(made, mask, ppo.Hyper(gamma=1.0, lam=0.95))
    torch.testing.assert_close(found["advantages"], torch.tensor([[0.95, 1.0, 0.0]]))
    torch.testing.assert_close(found["returns"], torch.tensor([[0.95, 1.0, 0.0]]))


def test_gae_by_hand_with_values_and_discount() -> None:
    made = {"token_rewards": torch.tensor([[0.5, 1.0]]), "values": torch.tensor([[0.2, 0.4]])}
    found = ppo.gae(made, torch.tensor([[True, True]]), ppo.Hyper(gamma=0.9, lam=0.5))
    second = 1.0 - 0.4
    first = 0.5 + 0.9 * 0.4 - 0.2 + 0.9 * 0.5 * second
    torch.testing.assert_close(found["advantages"], torch.tensor([[first, second]]))
    torch.testing.assert_close(found["returns"], torch.tensor([[first + 0.2, second + 0.4]]))


def test_gae_skips_a_hole_in_the_response() -> None:
    hyper = ppo.Hyper(gamma=0.9, lam=0.8)
    holed = {"token_rewards": torch.tensor([[1.0, NAN, 2.0]]), "values": torch.tensor([[0.3, NAN, 0.7]])}
    dense = {"token_rewards": torch.tensor([[1.0, 2.0]]), "values": torch.tensor([[0.3, 0.7]])}
    found = ppo.gae(holed, torch.tensor([[True, False, True]]), hyper)["advantages"]
    expected = ppo.gae(dense, torch.tensor([[True, True]]), hyper)["advantages"]
    torch.testing.assert_close(found[:, [0, 2]], expected)
    assert found[0, 1] == 0


def test_lambda_one_is_the_return_less_the_value() -> None:
    made = columns()
    made["token_rewards"] = made["returns"]
    found = ppo.gae(made, MASK, ppo.Hyper(gamma=1.0, lam=1.0))["advantages"]
    rewards = made["token_rewards"] * MASK
    remaining = rewards.flip(1).cumsum(1).flip(1)
    torch.testing.assert_close(found, (remaining - made["values"]) * MASK)


def test_reward_lands_on_the_last_token_less_the_kl() -> None:
    made = {
        "rewards": torch.tensor([2.0, 5.0]),
        "old_logprobs": torch.tensor([[-1.0, -2.0, NAN], [NAN, NAN, NAN]]),
        "ref_logprobs": torch.tensor([[-1.5, -1.0, NAN], [NAN, NAN, NAN]]),
    }
    mask = torch.tensor([[True, True, False], [False, False, False]])
    hyper = ppo.Hyper(kl_in="reward", kl_coefficient=0.1, kl_estimator="k1")
    found = ppo.kl_penalty(made, mask, hyper)["token_rewards"]
    torch.testing.assert_close(found, torch.tensor([[-0.05, 2.1, 0.0], [0.0, 0.0, 0.0]]))
    without = ppo.kl_penalty(made, mask, replace(hyper, kl_in="none"))["token_rewards"]
    torch.testing.assert_close(without, torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]))


def test_column_ops_ignore_what_is_outside() -> None:
    clean = columns()
    clean["token_rewards"] = clean["returns"]
    for op in (ppo.kl_penalty, ppo.gae, ppo.whiten):
        for name, column in op(clean, MASK, ppo.Hyper()).items():
            dirty = op(poisoned(clean, MASK), MASK, ppo.Hyper())[name]
            torch.testing.assert_close(dirty, column, rtol=0, atol=0)
            assert dirty[~MASK].eq(0).all(), name


@pytest.mark.parametrize("hyper", [ppo.Hyper(), EVERYTHING, ppo.Hyper(value_clip=None)])
@pytest.mark.parametrize(
    ("op", "variable"), [(ppo.ppo_policy_loss, "logprobs"), (ppo.ppo_value_loss, "new_values")]
)
def test_gradients_agree_with_finite_differences(hyper: ppo.Hyper, op: object, variable: str) -> None:
    made = poisoned(columns(), MASK)

    def total(inner: Tensor) -> Tensor:
        return op(made | {variable: inner}, MASK, hyper).loss.sum()  # type: ignore[operator, no-any-return]

    start = made[variable].masked_fill(~MASK, 0).requires_grad_()
    assert torch.autograd.gradcheck(total, (start,), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum"])
@pytest.mark.parametrize("op", [ppo.ppo_policy_loss, ppo.ppo_value_loss])
def test_splits_and_padding_change_no_gradient(op: object, kind: aggregation.Aggregation) -> None:
    weights = aggregation.token_weights(MASK.sum(1), kind)

    def gradient(batches: list[list[int]], extra: int) -> Tensor:
        leaf = {n: columns()[n].requires_grad_() for n in ("logprobs", "new_values", "entropy")}
        wide = padded(columns() | leaf, extra)
        mask = torch.nn.functional.pad(MASK, (0, extra))
        for rows in batches:
            part = {name: column[rows] for name, column in wide.items()}
            token_loss = op(part, mask[rows], EVERYTHING).loss  # type: ignore[operator]
            (weights[rows, None] * token_loss).sum().backward()
        return torch.stack([t.grad for t in leaf.values() if t.grad is not None])

    whole = gradient([[0, 1, 2]], 0)
    assert whole.abs().sum() > 0
    for batches, extra in (([[0], [1], [2]], 0), ([[2, 0], [1]], 0), ([[0, 1, 2]], 5), ([[1], [0, 2]], 3)):
        torch.testing.assert_close(gradient(batches, extra), whole, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("op", [ppo.ppo_policy_loss, ppo.ppo_value_loss])
def test_losses_and_metrics_are_zero_outside_and_detached(op: object) -> None:
    made = poisoned(columns(), MASK)
    made = {name: column.requires_grad_() for name, column in made.items()}
    result = op(made, MASK, EVERYTHING)  # type: ignore[operator]
    for name, column in {"loss": result.loss, **result.metrics}.items():
        assert column.shape == MASK.shape, name
        assert column.isfinite().all(), name
        assert column[~MASK].eq(0).all(), name
    assert not any(metric.requires_grad for metric in result.metrics.values())


def test_value_clip_stops_a_value_that_ran_ahead() -> None:
    made = {name: torch.tensor([[x]]) for name, x in (("values", 0.0), ("returns", 1.0))}
    new = torch.tensor([[0.9]], requires_grad=True)
    ppo.ppo_value_loss(
        made | {"new_values": new}, torch.tensor([[True]]), ppo.Hyper(value_clip=0.5)
    ).loss.sum().backward()
    assert new.grad is not None
    assert new.grad.item() == 0


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"clip_low": 1.5}, "clip_low"),
        ({"clip_high": -0.1}, "clip_high"),
        ({"dual_clip": 1.0}, "dual_clip"),
        ({"value_clip": -1.0}, "value_clip"),
        ({"gamma": 1.1}, "gamma"),
        ({"lam": NAN}, "lam"),
        ({"kl_in": "rewards"}, "Did you mean 'reward'"),
        ({"kl_estimator": "k4"}, "kl_estimator"),
        ({"kl_in": "loss", "kl_estimator": "k1"}, "gradient of zero"),
        ({"kl_coefficient": -1.0}, "kl_coefficient"),
        ({"entropy_coefficient": -1.0}, "entropy_coefficient"),
        ({"loss_aggregation": "fixed_length"}, "fixed_length"),
    ],
)
def test_bad_hyperparameters_are_refused(values: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        ppo.Hyper(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("kl_in", ["reward", "loss", "none"])
def test_graph_has_a_reference_only_where_the_kl_is_used(kl_in: kl.KlPlace) -> None:
    graph = ppo.graph(ppo.Hyper(kl_in=kl_in, kl_estimator="k3"))
    names = [stage.name for stage in graph.stages]
    assert ("reference" in names) is (kl_in != "none")
    assert [name for name in names if name != "reference"] == [
        "prompts",
        "generate",
        "reward",
        "old_logprob",
        "value",
        "advantage",
        "train_actor",
        "train_critic",
    ]
    assert graph.stage("advantage").scope is ir.Scope.BATCH


def test_every_op_of_host_and_training_is_implemented() -> None:
    for name in algorithms.names():
        module = algorithms.load(name)
        graph = module.graph(module.Hyper())
        ops = {op.name for s in graph.stages if s.name.startswith(("advantage", "train")) for op in s.ops}
        assert ops <= set(module.OPS)


def test_a_model_with_two_heads_learns_by_a_weighted_sum() -> None:
    hyper = ppo.Hyper(value_loss_weight=0.25)
    losses = [ppo.ppo_policy_loss(columns(), MASK, hyper), ppo.ppo_value_loss(columns(), MASK, hyper)]
    weights = [hyper.loss_weights.get(name, 1.0) for name in ("ppo_policy_loss", "ppo_value_loss")]
    both = weighted_sum(list(zip(weights, losses, strict=True)))
    torch.testing.assert_close(both.loss, losses[0].loss + 0.25 * losses[1].loss)
    assert both.metrics.keys() == losses[0].metrics.keys() | losses[1].metrics.keys()
    assert weighted_sum([(0.25, losses[1])]) is losses[1], "alone, a loss is as it is"


@pytest.mark.parametrize(
    ("hyper", "said"),
    [({"value_loss_weight": 0.0}, "above 0"), ({"value_gradient_scale": 1.5}, r"in \[0, 1\]")],
)
def test_sharing_is_checked(hyper: dict[str, float], said: str) -> None:
    with pytest.raises(InputError, match=said):
        ppo.Hyper(**hyper)
