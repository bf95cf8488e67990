"""PPO iterations: calls of a known plan in turn; systems whose plan nobody published are refused."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from rpeg.validation import real

_CALLS = ("actor_gen", "ref_inf", "rew_inf", "critic_inf", "actor_train", "critic_train")
# openpsi-project/ReaLHF docs/source/images/vws.svg, and the plan of its heuristic at c3889be8.
ROW: dict[str, Any] = {
    "id": "row",
    "source": "ReaLHF",
    "kind": "rlhf_ppo_iteration",
    "setting": {
        "algorithm": "PPO",
        "system": "ReaL-Heuristic",
        "actor_b": 7,
        "ref_b": 7,
        "critic_b": 7,
        "reward_b": 7,
        "n_gpus": 16,
        "gpus_per_node": 8,
        "gpu": "A800-80GB inferred (cluster QH), not stated in the figure",
        "prompt_len": 128,
        "gen_len": 896,
        "batch_size": 128,
        "ppo_minibatches": 4,
        "cuda_graph_generation": False,
    },
    "plan": {
        "calls": {call: {"tp": 8, "pp": 2, "dp": 1} for call in _CALLS},
        "param_realloc": False,
        "sequence_parallel": True,
        "ref_and_reward": "weights offloaded to CPU after each call",
    },
    "measured": {"failed": False, "iter_time_s": 58.198},
}


def changed(part: str, **values: Any) -> dict[str, Any]:
    row = deepcopy(ROW)
    row[part].update(values)
    return row


def test_an_iteration_is_its_calls_in_turn():
    outcome = real.predict(ROW)
    assert outcome.cost is not None
    assert [part.name for part in outcome.cost.children] == [
        "generate (actor)",
        "inference (reward)",
        "inference (ref)",
        "inference (critic)",
        "train (actor)",
        "train (critic)",
        "cleared cache",
    ]
    assert outcome.predicted == pytest.approx(sum(part.seconds for part in outcome.cost.children))
    assert 0.2 < outcome.predicted / 58.198 < 2.0


def test_only_the_reference_and_the_reward_are_offloaded():
    cost = real.predict(ROW).cost
    assert cost is not None
    moved = [part.name for part in cost.children if part.find("offload")]
    assert moved == ["inference (reward)", "inference (ref)"]


def test_micro_batches_follow_the_pipeline():
    cost = real.predict(ROW).cost
    assert cost is not None
    trained, scored = cost.find("train (actor)"), cost.find("inference (ref)")
    assert trained is not None
    assert scored is not None
    assert trained.find("micro-batches").count == 4  # 2 pp
    assert scored.find("micro-batches").count == 2


def test_longer_responses_and_larger_models_take_longer():
    base = real.predict(ROW).predicted
    assert base is not None
    assert real.predict(changed("setting", gen_len=384)).predicted < base
    assert real.predict(changed("setting", actor_b=13)).predicted > base


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({**ROW, "plan": None}, "plan of ReaL-Heuristic is unknown"),
        ({**ROW, "plan": {"kind": "found by the MCMC search"}}, "found by the MCMC search"),
        (changed("plan", param_realloc=True), "lengths of the prompts are not given"),
        (changed("setting", actor_b=9), "no 9B model"),
        (changed("setting", batch_size=None), "'batch_size' is not given"),
        (changed("measured", failed=True, iter_time_s=None), "the run failed"),
    ],
)
def test_what_cannot_be_expressed_is_named(row, reason):
    outcome = real.predict(row)
    assert outcome.predicted is None
    assert reason in outcome.reason


def test_pipelines_generate_a_token_more_for_each_further_stage():
    one = deepcopy(ROW)
    for call in one["plan"]["calls"].values():
        call["pp"] = 1
    assert real.described(ROW).response == 897
    assert real.described(one).response == 896


def test_an_iteration_ends_with_cleared_caches():
    cost = real.iteration(real.described(ROW))
    assert cost.children[-1].name == "cleared cache"
    assert cost.children[-1].seconds > 0
