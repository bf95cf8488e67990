from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.algorithms import aggregation, clipping, kl
from rpeg.errors import InputError

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)
KINDS = ["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "fixed_length"]


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("token_mean", [1 / 4, 1 / 4]),
        ("sequence_mean_token_mean", [1 / 2, 1 / 6]),
        ("sequence_mean_token_sum", [1 / 2, 1 / 2]),
        ("fixed_length", [1 / 20, 1 / 20]),
    ],
)
def test_weights_by_hand(kind: aggregation.Aggregation, weights: list[float]) -> None:
    found = aggregation.token_weights(np.array([1, 3]), kind, fixed_length=10)
    np.testing.assert_allclose(found, weights)
    assert found.dtype == np.float64


@given(LENGTHS, st.sampled_from(KINDS))
@settings(max_examples=40, deadline=None)
def test_numpy_and_tensor_agree_in_double(lengths: list[int], kind: aggregation.Aggregation) -> None:
    ours = aggregation.token_weights(torch.tensor(lengths), kind, 7)
    assert ours.dtype == torch.float64
    np.testing.assert_array_equal(ours.numpy(), aggregation.token_weights(np.array(lengths), kind, 7))


@given(LENGTHS)
@settings(max_examples=40, deadline=None)
def test_means_weigh_one_in_all(lengths: list[int]) -> None:
    counts = np.array(lengths)
    for kind in KINDS[:2]:
        assert (aggregation.token_weights(counts, kind) * counts).sum() == pytest.approx(1)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_responses_and_batches_stay_finite(kind: aggregation.Aggregation) -> None:
    assert np.isfinite(aggregation.token_weights(np.array([0, 0]), kind, 3)).all()
    assert aggregation.token_weights(np.array([], dtype=np.int64), kind, 3).shape == (0,)


def test_unknown_aggregation_names_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'token_mean'"):
        aggregation.token_weights(np.array([1]), "token_maen")  # type: ignore[call-overload]
    with pytest.raises(InputError, match="fixed_length"):
        aggregation.token_weights(np.array([1]), "fixed_length")


def test_kl_estimates_by_hand() -> None:
    policy, reference = torch.tensor([0.5]).double().log(), torch.tensor([0.25]).double().log()
    log_two = np.log(2)
    expected = {
        "k1": log_two,
        "k2": log_two**2 / 2,
        "k3": 0.5 - 1 + log_two,
        "abs": log_two,
        "low_variance": 0.5 - 1 + log_two,
    }
    for kind, value in expected.items():
        assert kl.kl_estimate(policy, reference, kind).item() == pytest.approx(value)  # type: ignore[arg-type]


def test_k1_and_k3_average_to_the_kl() -> None:
    policy = torch.tensor([0.7, 0.2, 0.1]).double()
    reference = torch.tensor([0.2, 0.3, 0.5]).double()
    exact = (policy * (policy / reference).log()).sum().item()
    for kind in ("k1", "k3", "low_variance"):
        mean = (policy * kl.kl_estimate(policy.log(), reference.log(), kind)).sum().item()  # type: ignore[arg-type]
        assert mean == pytest.approx(exact)


def test_low_variance_is_bounded_where_k3_overflows() -> None:
    policy, reference = torch.tensor([-200.0]), torch.tensor([0.0])
    assert kl.kl_estimate(policy, reference, "k3").isinf().all()
    assert kl.kl_estimate(policy, reference, "low_variance").item() == kl.LOW_VARIANCE_BOUND


def test_ratio_is_finite_for_any_logprobs() -> None:
    ratio = clipping.probability_ratio(torch.tensor([0.0, -1e30]), torch.tensor([-1e30, 0.0]))
    assert ratio.isfinite().all()


@pytest.mark.parametrize(
    ("ratio", "advantage", "dual", "expected", "clipped"),
    [
        (1.5, 1.0, None, -1.2, True),  # gain beyond 1 + clip_high counts no more
        (0.5, 1.0, None, -0.5, False),  # a fallen good token is pulled up unclipped
        (0.5, -1.0, None, 0.8, True),
        (1.5, -1.0, None, 1.5, False),
        (9.0, -1.0, 3.0, 3.0, True),  # dual clip bounds the blow-up
        (9.0, 1.0, 3.0, -1.2, True),  # and is silent for good tokens
    ],
)
def test_clipping_by_hand(
    ratio: float, advantage: float, dual: float | None, expected: float, clipped: bool
) -> None:
    value, cut, over = clipping.clipped_policy_loss(
        torch.tensor([ratio]), torch.tensor([advantage]), 0.2, 0.2, dual
    )
    assert value.item() == pytest.approx(expected)
    assert (cut | over).item() is clipped
