"""Responses of another policy: weights, masks and the metrics that show it."""

from __future__ import annotations

from math import exp, log
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.algorithms import corrections, mismatch, ppo, shaping
from rpeg.errors import InputError

NAN = float("nan")
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]]) > 0
RATIOS = torch.tensor([[2.0, 0.5, NAN], [4.0, NAN, NAN]]).double()
LOG_RATIO = RATIOS.log()


@pytest.mark.parametrize(
    ("level", "cap", "floor", "normalize", "expected"),
    [
        ("token", None, None, False, [2, 0.5, 4]),
        ("token", 3.0, None, False, [2, 0.5, 3]),  # truncated importance sampling
        ("token", 3.0, 0.6, False, [2, 0, 0]),  # IcePop
        ("token", None, None, True, [12 / 13, 3 / 13, 24 / 13]),  # mean 6.5 / 3
        ("sequence", None, None, False, [1, 1, 4]),  # 2 · 0.5 = 1
        ("sequence", 3.0, None, False, [1, 1, 3]),
        ("sequence", None, None, True, [0.4, 0.4, 1.6]),  # mean of the responses 2.5
    ],
)
def test_weights_of_each_kind(
    level: Any, cap: float | None, floor: float | None, normalize: bool, expected: list[float]
) -> None:
    weights, raw = corrections.importance_weights(LOG_RATIO, MASK, level, cap, floor, normalize=normalize)
    assert weights[MASK].tolist() == pytest.approx(expected)
    assert weights[~MASK].eq(0).all()
    assert raw[~MASK].eq(0).all()


def test_weights_are_finite_and_without_gradient() -> None:
    far = torch.tensor([[1e30, -1e30]], requires_grad=True)
    weights, _ = corrections.importance_weights(far, torch.ones(1, 2) > 0, "token", None)
    assert weights.isfinite().all()
    assert not weights.requires_grad


@pytest.mark.parametrize(
    ("by", "estimator", "low", "high", "expected"),
    [
        ("token", "k1", None, 3.0, [1, 1, 0]),  # ratios behaviour / actor 0.5, 2, 0.25 within [1/3, 3]
        ("token", "k1", 0.2, 1.0, [1, 0, 1]),
        ("token", "k2", None, 0.5, [1, 1, 0]),  # (log 2)² / 2 = 0.24, (log 4)² / 2 = 0.96
        ("token", "k3", None, 0.25, [0, 1, 0]),  # 2 - 1 - log 2 = 0.31, 0.5 - 1 + log 2 = 0.19
        ("sequence_sum", "k1", None, 3.0, [1, 1, 0]),  # 1 and 1/4
        ("sequence_mean", "k2", None, 0.5, [1, 1, 0]),
        ("sequence_max", "k3", None, 0.3, [0, 0, 0]),
        ("sequence_max", "k3", None, 0.35, [1, 1, 0]),
    ],
)
def test_rejection_by_hand(
    by: Any, estimator: Any, low: float | None, high: float, expected: list[int]
) -> None:
    kept, decided = corrections.rejection_mask(LOG_RATIO, MASK, by, estimator, low, high)
    assert kept[MASK].tolist() == [bool(e) for e in expected]
    assert not kept[~MASK].any()
    assert decided[~MASK].eq(0).all()


def test_stale_and_cut_responses_are_left_out() -> None:
    staleness = torch.tensor([[0, 2, 9], [1, 9, 9]])
    made = {"staleness": staleness, "finish": torch.tensor([1, 0])}
    hyper = ppo.Hyper(staleness_bound=1)
    assert shaping.loss_mask(made, MASK, hyper)["loss_mask"].tolist() == [[1, 0, 0], [1, 0, 0]]
    hyper = ppo.Hyper(truncated="mask")
    assert shaping.loss_mask(made, MASK, hyper)["loss_mask"].tolist() == [[1, 1, 0], [0, 0, 0]]
    hyper = ppo.Hyper(truncated="mask", staleness_bound=1)
    assert shaping.loss_mask(made, MASK, hyper)["loss_mask"].tolist() == [[1, 0, 0], [0, 0, 0]]


def test_decoupled_is_clipped_about_the_proximal_policy_and_weighted_by_it_over_behaviour() -> None:
    """arXiv:2110.00641, eq. 4: (π_prox / π_behav) · clip(π / π_prox) A."""
    behaviour, proximal, current = log(0.2), log(0.3), log(0.6)
    made = {
        "behaviour_logprobs": torch.tensor([[behaviour]]).double(),
        "old_logprobs": torch.tensor([[proximal]]).double(),
        "logprobs": torch.tensor([[current]]).double(),
        "advantages": torch.tensor([[2.0]]).double(),
    }
    hyper, one = ppo.Hyper(importance="token", importance_cap=None, kl_in="none"), torch.ones(1, 1) > 0
    made |= shaping.importance(made, one, hyper)
    assert ppo.ppo_policy_loss(made, one, hyper).loss.item() == pytest.approx(-1.5 * 1.2 * 2.0)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=12), st.floats(0.1, 5))
@settings(max_examples=50, deadline=None)
def test_the_effective_share_is_a_share_and_blind_to_scale(logs: list[float], scale: float) -> None:
    weights = torch.tensor([logs]).double().exp()
    mask = weights > 0
    found = mismatch.effective_share(weights, mask).item()
    assert 1 / len(logs) - 1e-9 <= found <= 1 + 1e-9
    assert mismatch.effective_share(weights * scale, mask).item() == pytest.approx(found)


def test_policy_metrics_by_hand() -> None:
    behaviour = torch.tensor([[log(0.5), log(0.5), NAN], [log(0.25), NAN, NAN]]).double()
    old = behaviour + torch.tensor([[log(2), 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = {n: float(v) for n, v in mismatch.policy_metrics(old, behaviour, MASK).items()}
    assert found["behaviour_kl"] == pytest.approx(-log(2) / 3)
    assert found["behaviour_kl_k3"] == pytest.approx((1 - log(2)) / 3)
    assert found["behaviour_ratio"] == pytest.approx(4 / 3)
    assert found["behaviour_ratio_max"] == pytest.approx(2)
    assert found["behaviour_gap_max"] == pytest.approx(log(2))
    assert found["effective_share"] == pytest.approx((4 / 3) ** 2 / 2)
    assert found["chi2"] == pytest.approx(1)
    assert found["chi2_response"] == pytest.approx((4 + 1) / 2 - 1)
    assert found["behaviour_perplexity"] == pytest.approx((2 + 4) / 2)
    assert found["perplexity"] == pytest.approx((exp(log(2) / 2) + 4) / 2)


def test_one_policy_shows_no_mismatch() -> None:
    logprobs = torch.tensor([[-1.0, -2.0, NAN], [-0.5, NAN, NAN]])
    found = mismatch.policy_metrics(logprobs, logprobs, MASK)
    assert {n: float(v) for n, v in found.items() if "perplexity" not in n} == {
        "behaviour_kl": 0,
        "behaviour_kl_k3": 0,
        "behaviour_ratio": 1,
        "behaviour_ratio_max": 1,
        "behaviour_gap_max": 0,
        "effective_share": 1,
        "chi2": 0,
        "chi2_response": 0,
    }


def test_the_histogram_of_staleness() -> None:
    staleness = torch.tensor([[0, 2, 7], [0, 7, 7]])
    assert mismatch.staleness_histogram(staleness, MASK) == pytest.approx(
        {"staleness_0": 2 / 3, "staleness_1": 0, "staleness_2": 1 / 3}
    )


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"importance": "tokens"}, "Did you mean 'token'"),
        ({"importance_cap": 0.0}, "importance_cap"),
        ({"importance_floor": 3.0}, "importance_floor ≤ importance_cap"),
        ({"importance_floor": -1.0}, "importance_floor"),
        ({"reject": "token"}, "reject_high, which is missing"),
        ({"reject_high": 1.0}, "Set reject"),
        ({"reject": "sequence_max", "reject_high": 2.0}, "Use k2 or k3"),
        ({"reject": "token", "reject_high": 0.5, "reject_low": 0.9}, "reject_low ≤ reject_high"),
        ({"reject": "token", "reject_high": 0.5, "reject_estimator": "k9"}, "reject_estimator"),
        ({"staleness_bound": -1}, "staleness_bound"),
        ({"truncated": "drop"}, "truncated"),
        ({"conventions": "vrel"}, "Did you mean 'verl'"),
    ],
)
def test_bad_corrections_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ppo.Hyper(**values)
