from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.algorithms import aggregation, grpo
from rpeg.errors import InputError

REWARDS = st.lists(st.floats(-10, 10, width=32, allow_subnormal=False), min_size=1, max_size=12)


def advantages(rewards: list[float], group: list[int], hyper: grpo.Hyper | None = None) -> torch.Tensor:
    """One advantage a sample: the mask has one token in each response."""
    columns = {"rewards": torch.tensor(rewards), "group": torch.tensor(group)}
    mask = torch.ones(len(rewards), 1, dtype=torch.bool)
    return grpo.group_normalize(columns, mask, hyper or grpo.Hyper())["advantages"][:, 0]


def test_two_groups_by_hand() -> None:
    found = advantages([1.0, 10.0, 0.0, 30.0], [7, 3, 7, 3])
    half = 0.5**0.5  # (1 - 0.5) / std, std = sqrt(0.5) for two rewards one apart
    torch.testing.assert_close(found, torch.tensor([half, -half, -half, half]), rtol=1e-5, atol=1e-5)


def test_without_std_only_the_mean_is_taken_off() -> None:
    found = advantages([1.0, 10.0, 0.0, 30.0], [7, 3, 7, 3], grpo.Hyper(normalize_std=False))
    torch.testing.assert_close(found, torch.tensor([0.5, -10.0, -0.5, 10.0]))


def test_one_outlier_among_equals_stays_small() -> None:
    found = advantages([0.95] * 7 + [0.0], [0] * 8)
    assert found.abs().max().item() == pytest.approx(7 / 8**0.5, abs=1e-4)
    assert found[:7].tolist() == pytest.approx([1 / 8**0.5] * 7, abs=1e-4)


@given(st.floats(-1e6, 1e6, width=32, allow_subnormal=False), st.integers(1, 9), st.booleans())
@settings(max_examples=60, deadline=None)
def test_equal_rewards_give_exact_zeros(reward: float, count: int, normalize: bool) -> None:
    found = advantages([reward] * count, [0] * count, grpo.Hyper(normalize_std=normalize))
    assert found.tolist() == [0.0] * count


def test_rewards_equal_up_to_rounding_give_zeros() -> None:
    assert advantages([0.95, 0.95 + 6e-8, 0.95 - 6e-8, 0.95], [0] * 4).tolist() == [0.0] * 4


@given(REWARDS, st.data())
@settings(max_examples=60, deadline=None)
def test_bounded_by_group_size_and_blind_to_order(rewards: list[float], data: st.DataObject) -> None:
    group = data.draw(st.lists(st.integers(0, 3), min_size=len(rewards), max_size=len(rewards)))
    order = data.draw(st.permutations(range(len(rewards))))
    found = advantages(rewards, group)
    assert found.abs().max().item() <= len(rewards) ** 0.5
    shuffled = advantages([rewards[i] for i in order], [group[i] for i in order])
    torch.testing.assert_close(shuffled, found[list(order)])


def test_advantage_is_that_of_its_response_at_each_of_its_tokens() -> None:
    columns = {"rewards": torch.tensor([1.0, 0.0]), "group": torch.tensor([0, 0])}
    mask = torch.tensor([[True, True, False], [True, False, False]])
    found = grpo.group_normalize(columns, mask, grpo.Hyper(normalize_std=False))["advantages"]
    assert found.tolist() == [[0.5, 0.5, 0.0], [-0.5, 0.0, 0.0]]


def test_policy_gradient_agrees_with_finite_differences() -> None:
    draw = torch.Generator().manual_seed(3)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    names = ("old_logprobs", "ref_logprobs", "advantages")
    made = {n: torch.randn(2, 3, generator=draw).double().masked_fill(~mask, float("nan")) for n in names}
    hyper = grpo.Hyper(kl_coefficient=0.3, clip_high=0.28)
    weights = aggregation.token_weights(mask.sum(1), hyper.loss_aggregation)[:, None]

    def total(logprobs: torch.Tensor) -> torch.Tensor:
        token_loss = grpo.grpo_policy_loss(made | {"logprobs": logprobs}, mask, hyper).loss
        return (weights * token_loss).sum()

    start = torch.randn(2, 3, generator=draw).double().requires_grad_()
    assert torch.autograd.gradcheck(total, (start,), eps=1e-6, atol=1e-6)


def test_kl_in_the_reward_is_refused() -> None:
    with pytest.raises(InputError, match="Use kl_in: loss"):
        grpo.Hyper(kl_in="reward")


def test_graph_has_no_critic_and_normalises_whole_groups() -> None:
    graph = grpo.graph(grpo.Hyper(kl_in="none"))
    assert [stage.name for stage in graph.stages] == [
        "prompts",
        "generate",
        "reward",
        "old_logprob",
        "advantage",
        "train_actor",
    ]
    assert graph.stage("advantage").scope.name == "GROUP"
