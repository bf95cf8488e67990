"""Traps of numerics that real users fell into, each worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from algorithms.losses import MASK, columns, policy, total
from rpeg import algorithms
from rpeg.algorithms import aggregation, groups, grpo, ppo, reinforce, reinforce_plus_plus, returns, rloo
from rpeg.algorithms.conventions import RPEG, VERL
from rpeg.errors import InputError

ONE = torch.tensor([[True]])


def _gae(hyper: ppo.Hyper, rewards: list[float], mask: list[int], values: list[float]) -> Tensor:
    """Advantages of one response with this reward for the whole of it."""
    kept = torch.tensor([mask]) > 0
    made = {"rewards": torch.tensor(rewards), "values": torch.tensor([values]).float()}
    made |= ppo.kl_penalty(made, kept, hyper)
    return ppo.gae(made, kept, hyper)["advantages"][0]


def test_values_past_the_end_are_never_read() -> None:
    """ROLL #447: the buggy result was [5.70, 6.0, 0]."""
    hyper = ppo.Hyper(kl_in="none", gamma=1.0, lam=0.95)
    torch.testing.assert_close(_gae(hyper, [1.0], [1, 1, 0], [0, 0, 100]), torch.tensor([0.95, 1.0, 0.0]))


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
def test_a_reward_after_masked_observations_reaches_the_last_token_whole(gamma: float) -> None:
    """miles #1827: one trained token and four observations; plain GAE gives 0.95⁴ = 0.8145, or 0 at γ = 0."""
    hyper = ppo.Hyper(kl_in="none", gamma=gamma, lam=0.95)
    found = _gae(hyper, [1.0], [1, 0, 0, 0, 0], [0, 7, 7, 7, 7])
    assert found.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]


def test_a_cut_response_is_continued_by_its_value_only_where_that_is_said() -> None:
    rewards, values = torch.zeros(2, 2), torch.tensor([[0.5, 0.25], [0.5, 0.25]])
    kept = torch.ones(2, 2) > 0
    final = torch.tensor([0.0, 1.0])  # the second was cut, and is worth 1 from there on
    found, _ = returns.generalized_advantages(rewards, values, kept, gamma=1.0, lam=1.0, final_values=final)
    torch.testing.assert_close(found, torch.tensor([[-0.5, -0.25], [0.5, 0.75]]))
    ended, _ = returns.generalized_advantages(rewards, values, kept, gamma=1.0, lam=1.0)
    torch.testing.assert_close(ended[0], ended[1])


def test_ppo_bootstraps_where_the_job_says_so() -> None:
    """Two responses of two tokens with values 0.5 and 0.25, reward 0, γ = 0.5, λ = 1. The second was cut and is worth 1
    after that: δ = 0.5 · 1 - 0.25 = 0.25 at its last token, and 0.5 · 0.25 - 0.5 + 0.5 · 0.25 = -0.25 before it."""
    made = {
        "token_rewards": torch.zeros(2, 2),
        "values": torch.tensor([[0.5, 0.25], [0.5, 0.25]]),
        "final_values": torch.tensor([0.0, 1.0]),
    }
    kept = torch.ones(2, 2) > 0
    hyper = ppo.Hyper(kl_in="none", gamma=0.5, lam=1.0, truncated="bootstrap")
    found = ppo.gae(made, kept, hyper)
    torch.testing.assert_close(found["advantages"], torch.tensor([[-0.5, -0.25], [-0.25, 0.25]]))
    torch.testing.assert_close(found["returns"], torch.tensor([[0.0, 0.0], [0.25, 0.5]]))
    ended = ppo.gae(made, kept, ppo.Hyper(kl_in="none", gamma=0.5, lam=1.0))
    torch.testing.assert_close(ended["advantages"][1], ended["advantages"][0])
    value = ppo.graph(hyper).stage("value")
    assert value.gives == {"values", "final_values"}
    assert "final_values" in ppo.graph(hyper).stage("advantage").needs
    with pytest.raises(InputError, match="it needs a critic's value after the cut"):
        grpo.Hyper(truncated="bootstrap")


@pytest.mark.parametrize("name", ["ppo", "grpo", "rloo", "remax", "reinforce_plus_plus"])
def test_a_kl_that_weighs_nothing_needs_no_reference(name: str) -> None:
    module = algorithms.load(name)
    weighed, weightless = (module.graph(module.Hyper(kl_coefficient=c)) for c in (0.001, 0.0))
    assert "reference" in {model.name for model in weighed.models}
    assert weightless == module.graph(module.Hyper(kl_in="none"))


ESTIMATORS: dict[str, Any] = {
    "grpo": (grpo.group_normalize, grpo.Hyper()),
    "dr_grpo": (grpo.group_normalize, grpo.Hyper(normalize_std=False)),
    "rloo": (rloo.leave_one_out, rloo.Hyper()),
    "reinforce_plus_plus": (reinforce_plus_plus.group_center, reinforce_plus_plus.Hyper(baseline="group")),
    "opo": (reinforce.baseline, reinforce.Hyper(baseline="length_weighted")),
    "gpg": (reinforce.baseline, reinforce.Hyper(baseline="group", scale_by_scored=True)),
    "best": (reinforce.baseline, reinforce.Hyper(baseline="best_of_group")),
}


def _advantages(name: str, rewards: list[float], group: list[int], lone: str = "rpeg") -> Tensor:
    op, hyper = ESTIMATORS[name]
    made = {"rewards": torch.tensor(rewards), "group": torch.tensor(group)}
    kept = torch.ones(len(rewards), 1) > 0
    found: Tensor = op(made, kept, type(hyper)(**{**vars(hyper), "conventions": lone}))["advantages"][:, 0]
    return found


@pytest.mark.parametrize("name", ESTIMATORS)
def test_seven_equals_and_one_other_stay_small(name: str) -> None:
    assert _advantages(name, [0.95] * 7 + [0.0], [0] * 8).abs().max().item() < 3


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("reward", [0.95, 0.1, 1e6, 0.0, -3.3])
def test_a_group_of_equals_teaches_exactly_nothing(name: str, reward: float) -> None:
    assert _advantages(name, [reward] * 8, [0] * 8).tolist() == [0.0] * 8


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "best"])
def test_a_lone_response_is_zero_or_its_reward_as_the_conventions_say(name: str) -> None:
    assert _advantages(name, [0.7, 1.0, 0.0], [0, 1, 1])[0].item() == 0
    raw = _advantages(name, [0.7, 1.0, 0.0], [0, 1, 1], "verl")[0].item()
    scale = 3 / 2 if name == "gpg" else 1  # two of three responses have a reward
    assert raw == pytest.approx(0.7 * scale, rel=1e-5)
    assert (RPEG.lone, VERL.lone) == ("zero", "raw")


def test_rewards_of_any_size_keep_their_differences() -> None:
    """Leaving one out by (sum - r) / (n - 1) of large single-precision numbers loses what distinguishes them."""
    found = groups.leave_one_out(torch.tensor([16_000_001.0, 16_000_000.0]), torch.tensor([0, 0]))
    assert found.tolist() == [0.0, 0.0]  # a sixteen-millionth apart: rounding, by our rule
    found = groups.leave_one_out(torch.tensor([10_001.0, 10_000.0, 10_000.0]), torch.tensor([0, 0, 0]))
    assert found.tolist() == pytest.approx([1.0, -0.5, -0.5], rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token_mean", (1 / 10, 1 / 10)),  # 1 / (1 + 9)
        ("token_sum", (1.0, 1.0)),
        ("sequence_mean_token_mean", (1 / 2, 1 / 18)),  # 1 / (2 · length)
        ("sequence_mean_token_sum", (1 / 2, 1 / 2)),
        ("fixed_length", (1 / 24, 1 / 24)),  # 1 / (2 · 12), whatever the padding
    ],
)
def test_every_aggregation_by_its_formula(
    kind: aggregation.Aggregation, expected: tuple[float, float]
) -> None:
    """verl #2776: responses of one and of nine tokens."""
    found = aggregation.token_weights(np.array([1, 9]), kind, 12)
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    with_one_left_out = aggregation.token_weights(np.array([1, 9, 0]), kind, 12)
    np.testing.assert_allclose(with_one_left_out[:2], expected, rtol=1e-15)


def test_accumulation_and_ranks_do_not_scale_the_gradient() -> None:
    """ms-swift #10117: a gradient of g / 4 with four micro-batches. Here: whole, by fours, by ranks of two."""
    op, hyper = policy("grpo", everything=False)
    weights = aggregation.token_weights(MASK.sum(1), hyper.loss_aggregation)
    gradients = []
    for batches in ([[0, 1, 2, 3]], [[0], [1], [2], [3]], [[0, 3], [1, 2]]):
        leaf = columns()["logprobs"].requires_grad_()
        made = columns() | {"logprobs": leaf}
        for rows in batches:
            total(op, {n: c[rows] for n, c in made.items()}, MASK[rows], hyper, weights[rows]).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(gradients[2], gradients[0], rtol=1e-12, atol=0)


def test_exactly_the_response_tokens_are_trained_the_last_one_too() -> None:
    """verl #1758: a mask shifted by one trains the last prompt token and never the end of the response."""
    from rpeg.backends.samples import Samples
    from rpeg.backends.training.microbatch import build

    ints = np.array
    samples = Samples(
        ints([0]), ints([3]), prompts=ints([10, 11]), prompt_lengths=ints([2]), responses=ints([20, 21, 2])
    )
    micro = build(samples, torch.device("cpu"))
    logits = torch.zeros(micro.tokens.numel(), 30, dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(-1)[micro.index].gather(1, micro.targets[:, None])[:, 0]
    op, hyper = policy("ppo", everything=False)
    made = {
        "logprobs": micro.padded(logprobs),
        "old_logprobs": micro.padded(logprobs.detach()),
        "advantages": torch.tensor([[1.0, 2.0, 4.0]]).double(),
    }
    op(made, micro.mask, hyper).loss.sum().backward()
    assert logits.grad is not None
    trained = logits.grad.abs().sum(1).nonzero()[:, 0].tolist()
    assert micro.tokens.tolist() == [[10, 11, 20, 21, 2]]
    assert trained == [1, 2, 3]  # where 20, 21 and the stop token 2 are predicted
    pulled = [logits.grad[p].argmin().item() for p in trained]
    assert pulled == [20, 21, 2]
    torch.testing.assert_close(
        [logits.grad[p].min().item() for p in trained], [-(1 - 1 / 30) * a for a in (1.0, 2.0, 4.0)]
    )


def test_temperature_belongs_to_the_logprobs() -> None:
    """Log-probabilities are of the distribution that was sampled from: logits over the temperature."""
    from rpeg.backends.training.logprobs import token_logprobs

    logits = torch.tensor([[0.0, 2.0]]).double()
    found, _ = token_logprobs(logits, torch.tensor([1]), lambda hidden: hidden, temperature=2.0)
    assert found.item() == pytest.approx(-np.log(1 + np.exp(-1.0)))
