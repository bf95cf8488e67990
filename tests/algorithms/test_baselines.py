"""Baselines by group, returns, penalties of length, and the adaptive KL coefficient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg import algorithms
from rpeg.algorithms import dapo, groups, kl, ppo, reinforce_plus_plus, remax, returns, shaping
from rpeg.errors import InputError

REWARDS = st.lists(st.floats(-10, 10, width=32, allow_subnormal=False), min_size=2, max_size=10)


@given(REWARDS)
@settings(max_examples=50, deadline=None)
def test_leaving_one_out_is_the_mean_of_the_others(rewards: list[float]) -> None:
    values = torch.tensor(rewards, dtype=torch.float64)
    if values.std() < 1e-5 * values.abs().max():
        return  # equals by our rule
    found = groups.leave_one_out(values, values.long() * 0)
    for i, advantage in enumerate(found.tolist()):
        others = [r for j, r in enumerate(rewards) if j != i]
        assert advantage == pytest.approx(rewards[i] - sum(others) / len(others), abs=1e-9)


@given(REWARDS, st.data())
@settings(max_examples=50, deadline=None)
def test_baselines_are_blind_to_order_and_to_other_groups(rewards: list[float], data: st.DataObject) -> None:
    group = data.draw(st.lists(st.integers(0, 2), min_size=len(rewards), max_size=len(rewards)))
    order = data.draw(st.permutations(range(len(rewards))))
    values, labels = torch.tensor(rewards).double(), torch.tensor(group)
    for estimate in (
        groups.center_by_group,
        groups.normalize_by_group,
        groups.leave_one_out,
        groups.best_of_group,
    ):
        found = estimate(values, labels)
        torch.testing.assert_close(estimate(values[order], labels[order]), found[order])
        alone = labels == group[0]
        torch.testing.assert_close(estimate(values[alone], labels[alone]), found[alone])


def test_the_best_leads_the_second_and_others_learn_nothing() -> None:
    found = groups.best_of_group(
        torch.tensor([1.0, 4.0, 2.0, 9.0]), torch.tensor([0, 0, 0, 1]), normalize=False
    )
    assert found.tolist() == [0.0, 2.0, 0.0, 0.0]
    tied = groups.best_of_group(torch.tensor([4.0, 4.0, 2.0]), torch.tensor([0, 0, 0]))
    assert tied.tolist() == [0.0, 0.0, 0.0]


def test_rewards_of_any_scale_weigh_alike_when_decoupled() -> None:
    rewards = torch.tensor([[1000.0, 0.0], [0.0, 1.0]]).double()
    found = groups.decoupled_normalize(rewards, torch.tensor([0, 0]))
    assert found.abs().max().item() < 1e-5
    first = groups.decoupled_normalize(rewards, torch.tensor([0, 0]), [1.0, 0.0])
    torch.testing.assert_close(first, groups.normalize_by_group(rewards[:, 0], torch.tensor([0, 0])))


def test_the_longer_response_moves_the_baseline_more() -> None:
    found = groups.center_by_group(
        torch.tensor([1.0, 0.0]), torch.tensor([0, 0]), weights=torch.tensor([3, 1])
    )
    assert found.tolist() == [0.25, -0.75]


def test_only_groups_that_differ_carry_a_signal() -> None:
    found = groups.informative(torch.tensor([1.0, 0.0, 1.0, 1.0, 0.3]), torch.tensor([5, 5, 7, 7, 9]))
    assert found.tolist() == [True, True, False, False, False]


def test_the_length_penalty_grows_over_the_buffer() -> None:
    """DAPO, eq. 13, with 16 tokens allowed, the last 4 of them a buffer."""
    found = returns.overlong_penalty(torch.tensor([1, 12, 13, 14, 16, 17]), 16, 4)
    assert found.tolist() == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    hyper = dapo.Hyper(overlong_length=4, overlong_buffer=2, overlong_factor=0.5)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]) > 0
    shaped = dapo.overlong({"rewards": torch.tensor([1.0, 1.0])}, mask, hyper)
    assert shaped["shaped_rewards"].tolist() == [1.0, 0.5]
    graph = dapo.graph(hyper)
    assert [op.name for op in graph.stage("advantage").ops] == ["overlong", "group_normalize"]


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
def test_returns_skip_what_the_policy_did_not_choose(gamma: float) -> None:
    rewards = torch.tensor([[1.0, float("nan"), 2.0, 4.0]])
    mask = torch.tensor([[True, False, True, True]])
    third = 2 + gamma * 4
    expected = torch.tensor([[1 + gamma * third, 0.0, third, 4.0]])
    torch.testing.assert_close(returns.discounted_returns(rewards, mask, gamma), expected)


def test_remax_takes_the_greedy_reward_off_what_is_to_come() -> None:
    made = {
        "token_rewards": torch.tensor([[0.5, 1.0, 9.0]]),
        "baseline_rewards": torch.tensor([2.0]),
    }
    mask = torch.tensor([[True, True, False]])
    found = remax.greedy_baseline(made, mask, remax.Hyper())["advantages"]
    assert found.tolist() == [[-0.5, -1.0, 0.0]]


def test_the_coefficient_by_hand() -> None:
    def after(divergence: float) -> float:
        return kl.next_coefficient(0.1, divergence, 50, target=6.0, horizon=100)

    assert after(6.0) == 0.1
    assert after(6.6) == pytest.approx(0.1 * (1 + 0.1 * 0.5))
    assert after(60.0) == pytest.approx(0.1 * (1 + 0.2 * 0.5))  # clipped
    assert after(0.0) == pytest.approx(0.1 * (1 - 0.2 * 0.5))


def test_the_coefficient_of_a_step_comes_from_the_one_before() -> None:
    hyper = ppo.Hyper(kl_target=0.1, kl_horizon=10, kl_coefficient=0.5)
    assert shaping.carried(hyper) == {"kl_coefficient": 0.5}
    assert shaping.carried(ppo.Hyper()) == {}
    made = {
        "rewards": torch.tensor([1.0]),
        "old_logprobs": torch.tensor([[-1.0, -1.0]]),
        "ref_logprobs": torch.tensor([[-1.5, -2.5]]),
        "kl_coefficient": torch.tensor(0.25),
    }
    found = shaping.kl_penalty(made, torch.ones(1, 2) > 0, hyper)
    torch.testing.assert_close(found["token_rewards"], torch.tensor([[-0.125, 0.625]]))
    assert found["reward_kl"].mean().item() == 1.0
    assert found["kl_coefficient"].item() == pytest.approx(0.25 * (1 + 0.2 / 10))


def test_straight_through_estimators_have_their_value_and_the_gradient_of_k2() -> None:
    policy = torch.tensor([-1.0, -3.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-2.0, -2.5], dtype=torch.float64)
    for kind in ("k1", "k3", "abs", "low_variance"):
        found = kl.kl_estimate(policy, reference, f"{kind}+")  # type: ignore[arg-type]
        torch.testing.assert_close(found, kl.kl_estimate(policy, reference, kind))  # type: ignore[arg-type]
        (gradient,) = torch.autograd.grad(found.sum(), policy)
        torch.testing.assert_close(gradient, (policy - reference).detach())
    with pytest.raises(InputError, match="k9"):
        kl.kl_estimate(policy, reference, "k9+")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("dapo", {"overlong_length": 8, "overlong_buffer": 9}, "overlong_buffer is 9"),
        ("dapo", {"overlong_length": 8, "overlong_buffer": 8, "overlong_factor": -1.0}, "overlong_factor"),
        ("dr_grpo", {"fixed_length": None}, "fixed_length"),
        ("gspo", {"clip_low": -1.0}, "clip_low"),
        ("cispo", {"clip_low": 1.5}, "clip_low"),
        ("rloo", {"kl_in": "loss"}, "gradient of zero"),
        ("rloo", {"kl_in": "none", "kl_target": 1.0}, "leave kl_target out"),
        ("ppo", {"kl_target": -1.0}, "kl_target"),
        ("ppo", {"kl_target": 1.0, "kl_horizon": 0.0}, "kl_horizon"),
        ("ppo", {"kl_target": 1.0, "kl_coefficient": 0.0}, "coefficient above 0"),
        ("reinforce", {"baseline": "mean"}, "baseline 'mean' is unknown"),
        ("reinforce_plus_plus", {"baseline": "group", "gamma": 0.9}, "Leave gamma out"),
        ("reinforce_plus_plus", {"gamma": 1.5}, "gamma"),
        ("sapo", {"tau_positive": 0.0}, "tau_positive"),
        ("gmpo", {"kl_in": "reward"}, "Use kl_in: loss"),
    ],
)
def test_bad_hyperparameters_are_refused_with_a_way_out(
    name: str, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        algorithms.load(name).Hyper(**values)


def test_the_baseline_variant_looks_at_groups_and_the_plain_one_does_not() -> None:
    plain = reinforce_plus_plus.graph(reinforce_plus_plus.Hyper())
    grouped = reinforce_plus_plus.graph(reinforce_plus_plus.Hyper(baseline="group"))
    assert [op.name for op in plain.stage("advantage").ops] == ["kl_penalty", "token_returns", "whiten"]
    assert [op.name for op in grouped.stage("advantage").ops] == ["kl_penalty", "group_center", "whiten"]
