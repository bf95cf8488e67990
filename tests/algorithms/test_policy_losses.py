"""The policy loss of every algorithm: gradients, and what must change nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

from algorithms.losses import EVERYTHING, MASK, NAMES, NAN, columns, policy, total
from rpeg import algorithms
from rpeg.algorithms import aggregation, loss, ppo

DIFFERENTIABLE = tuple(name for name in NAMES if name != "cispo")
"""CISPO's clipped ratio is a constant, so its gradient is not that of its value."""


@pytest.mark.parametrize("name", DIFFERENTIABLE)
@pytest.mark.parametrize("everything", [True, False])
def test_gradients_agree_with_finite_differences(name: str, everything: bool) -> None:
    op, hyper = policy(name, everything)
    made = columns(3)
    if name == "gspo":  # its gradient is that of a response's ratio where a response's tokens weigh alike
        made["importance_weights"] = made["importance_weights"][:, :1].expand(MASK.shape)

    def of(logprobs: Tensor, entropy: Tensor) -> Tensor:
        return total(op, made | {"logprobs": logprobs, "entropy": entropy}, MASK, hyper)

    start = [made[n].nan_to_num().requires_grad_() for n in ("logprobs", "entropy")]
    assert torch.autograd.gradcheck(of, start, eps=1e-6, atol=1e-7)


def test_cispo_moves_by_a_constant_weight() -> None:
    op, hyper = policy("cispo", everything=False)
    made = columns(3)
    leaf = made["logprobs"].clone().requires_grad_()
    op(made | {"logprobs": leaf}, MASK, hyper).loss.sum().backward()
    ratio = (made["logprobs"] - made["old_logprobs"]).exp().clamp(0, 1 + hyper.clip_high)
    by_hand = -(ratio * made["advantages"] * made["importance_weights"])
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad[MASK], by_hand[MASK])
    assert leaf.grad[~MASK].eq(0).all()


@pytest.mark.parametrize("name", NAMES)
def test_losses_and_metrics_are_zero_outside_finite_and_detached(name: str) -> None:
    op, hyper = policy(name)
    made = {n: c.clone().requires_grad_() for n, c in columns().items()}
    left_out = MASK.long()
    left_out[0, 1] = 0
    found = op(made | {"loss_mask": left_out}, MASK, hyper)
    for what, column in {"loss": found.loss, **found.metrics}.items():
        assert column.shape == MASK.shape, what
        assert column.isfinite().all(), what
        assert column[~MASK].eq(0).all(), what
    assert found.loss[0, 1] == 0
    assert not any(metric.requires_grad for metric in found.metrics.values())


def _gradient(
    name: str, hyper: Any, batches: list[list[int]], left: int, right: int, order: list[int], seed: int
) -> tuple[Tensor, Tensor]:
    """(loss, gradient) in the batch's own order, computed on padded, reordered parts of it."""
    op, _ = policy(name)
    weights = aggregation.token_weights(MASK.sum(1), hyper.loss_aggregation, hyper.fixed_length)
    made = columns(seed)
    leaf = made["logprobs"].clone().requires_grad_()
    wide = {n: pad(c, (left, right), value=NAN)[order] for n, c in (made | {"logprobs": leaf}).items()}
    mask, value = pad(MASK, (left, right))[order], torch.zeros((), dtype=torch.float64)
    for rows in batches:
        part = {n: c[rows] for n, c in wide.items()}
        value = value + total(op, part, mask[rows], hyper, weights[order][rows])
    value.backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return value.detach(), leaf.grad


@pytest.mark.parametrize("kind", ["token_mean", "sequence_mean_token_mean", "fixed_length"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_padding_order_and_splits_change_nothing(name: str, kind: str, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(MASK))))
    cuts = data.draw(st.sets(st.integers(1, len(MASK) - 1)))
    bounds = [0, *sorted(cuts), len(MASK)]
    batches = [list(range(a, b)) for a, b in pairwise(bounds)]
    left, right, seed = (data.draw(st.integers(0, 3)) for _ in range(3))
    hyper = algorithms.load(name).Hyper(**EVERYTHING, loss_aggregation=kind, fixed_length=7)
    whole = _gradient(name, hyper, [list(range(len(MASK)))], 0, 0, list(range(len(MASK))), seed)
    parts = _gradient(name, hyper, batches, left, right, list(order), seed)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-14)
    assert whole[1][MASK].abs().sum() > 0


@pytest.mark.parametrize("name", NAMES)
def test_padded_and_packed_are_one_loss(name: str) -> None:
    """Each response alone, without any padding, gives what the padded batch gives."""
    op, hyper = policy(name)
    weights = aggregation.token_weights(MASK.sum(1), hyper.loss_aggregation, hyper.fixed_length)
    made, found = columns(), []
    for packed in (False, True):
        leaf = made["logprobs"].clone().requires_grad_()
        all_columns = made | {"logprobs": leaf}
        if packed:
            value = sum(
                total(
                    op,
                    {n: c[i : i + 1, :length] for n, c in all_columns.items()},
                    MASK[i : i + 1, :length],
                    hyper,
                    weights[i : i + 1],
                )
                for i, length in enumerate(MASK.sum(1).tolist())
            )
        else:
            value = total(op, all_columns, MASK, hyper, weights)
        assert isinstance(value, Tensor)
        value.backward()  # type: ignore[no-untyped-call]
        found.append((value.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_on_the_weights_of_the_step_every_surrogate_is_the_policy_gradient(name: str) -> None:
    """Before the first update the ratio is 1, and all surrogates have the gradient of -A log π."""
    op, hyper = policy(name)[0], algorithms.load(name).Hyper(kl_in="none")
    made = columns()
    leaf = made["old_logprobs"].clone().requires_grad_()
    weightless = {n: c for n, c in made.items() if n != "importance_weights"}
    op(weightless | {"logprobs": leaf}, MASK, hyper).loss.sum().backward()
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad[MASK], -made["advantages"][MASK])


def test_without_old_logprobs_the_ratio_is_one() -> None:
    op, hyper = policy("ppo")
    made = columns()
    found = op({n: c for n, c in made.items() if n != "old_logprobs"}, MASK, hyper)
    assert found.metrics["ratio"][MASK].eq(1).all()


def test_what_is_left_out_has_no_gradient_in_either_loss() -> None:
    made = columns()
    kept = MASK.long()
    kept[2] = 0
    for op, name in ((ppo.ppo_policy_loss, "logprobs"), (ppo.ppo_value_loss, "new_values")):
        leaf = made[name].clone().requires_grad_()
        op(made | {name: leaf, "loss_mask": kept}, MASK, ppo.Hyper()).loss.sum().backward()
        assert leaf.grad is not None
        assert leaf.grad[2].eq(0).all()
        assert leaf.grad[0].abs().sum() > 0


@given(st.floats(-50, 50), st.floats(-5, 5))
@settings(max_examples=40, deadline=None)
def test_the_clip_bounds_what_a_token_gains(log_ratio: float, advantage: float) -> None:
    made = {
        "logprobs": torch.tensor([[log_ratio]], dtype=torch.float64),
        "old_logprobs": torch.zeros(1, 1).double(),
        "advantages": torch.tensor([[advantage]], dtype=torch.float64),
    }
    hyper = ppo.Hyper(clip_low=0.2, clip_high=0.28, dual_clip=3.0)
    found = loss.clipped_loss(made, torch.ones(1, 1) > 0, hyper).loss.item()
    bounds = (-1.28 * advantage, float("inf")) if advantage > 0 else (-0.8 * advantage, -3.0 * advantage)
    assert bounds[0] - 1e-9 <= found <= bounds[1] + 1e-9
