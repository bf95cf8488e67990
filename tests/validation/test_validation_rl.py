"""Rows of RL steps: what is read of them, and what is refused and why. Facts with their source."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rpeg.validation import rl
from rpeg.validation.rl_rows import table_row
from rpeg.validation.rl_step import drawn, filled, step_cost

# NVIDIA-NeMo/RL docs/about/performance-summary.md, v0.6; its recipe grpo-qwen3-32b-4n8g.yaml. Shape: the model's
# config.json.
QWEN3_32B = {
    "name": "Qwen3-32B",
    "layers": 64,
    "hidden": 5120,
    "heads": 64,
    "kv_heads": 8,
    "head_dim": 128,
    "ffn": 25600,
    "vocab": 151936,
    "gated_mlp": True,
}
SYNC: dict[str, Any] = {
    "id": "sync",
    "kind": "rl_step",
    "source": "NeMo RL performance summary",
    "setting": {
        "algorithm": "GRPO",
        "framework": "NeMo-RL v0.5",
        "model": QWEN3_32B,
        "gpu": "H100-80GB (DGX-H100)",
        "gpus": 32,
        "gpus_per_node": 8,
        "staleness_bound_steps": 0,
        "placement": "colocated",
        "max_seq_len": 4096,
        "avg_seq_len": 3251.0,
        "samples_per_step": 2048,
        "train_gbs": 512,
        "gen_tp": 4,
        "gen_pp": 1,
        "train_tp": 4,
        "train_pp": 4,
        "train_backend": "megatron-core",
        "rollout_backend": "vLLM",
        "recipe_resolved": {
            "num_prompts_per_step": 64,
            "num_generations_per_prompt": 32,
            "train_global_batch_size": 512,
            "train_micro_batch_size": 1,
            "logprob_batch_size": 4,
            "max_total_sequence_length": 4096,
            "sequence_packing": True,
            "activation_checkpointing": False,
            "train_tp": 4,
            "train_pp": 4,
            "train_cp": 1,
            "train_ep": 1,
            "sequence_parallel": True,
            "gen_tp": 4,
            "gen_enforce_eager": False,
            "kl_penalty": 0.01,
        },
    },
    "measured": {"step_time_s": 376.0, "tokens_per_s_per_gpu_e2e": 571.0},
}


def changed(**setting: Any) -> dict[str, Any]:
    row = deepcopy(SYNC)
    row["setting"].update(setting)
    return row


def test_a_synchronous_step_is_its_parts_in_turn():
    outcome = rl.predict(SYNC)
    assert outcome.measured == 376.0
    assert outcome.predicted is not None
    assert outcome.cost is not None
    names = [part.name for part in outcome.cost.children]
    assert names[-6:] == ["generate", "turn", "log-probabilities", "swap in the reference", "turn", "train"]
    assert outcome.predicted == pytest.approx(sum(part.seconds for part in outcome.cost.children))
    assert 0.3 < outcome.predicted / outcome.measured < 2.0


def test_an_asynchronous_step_takes_as_long_as_its_slower_side():
    row = changed(staleness_bound_steps=1, placement="disaggregated", gpus=64)
    row["setting"]["recipe_resolved"] |= {"gen_num_nodes": 4, "gen_gpus_per_node": 8}
    cost = rl.predict(row).cost
    assert cost is not None
    generators, trainers = cost.children
    assert cost.seconds == pytest.approx(max(generators.seconds, trainers.seconds))
    assert trainers.find("generate") is None


def test_nothing_of_a_prediction_is_read_from_the_measurement():
    assert table_row(SYNC) == table_row(SYNC | {"measured": {"step_time_s": 1.0}})


def test_dapo_generates_more_than_it_trains():
    row = changed(algorithm="DAPO", samples_per_step=512)
    row["setting"]["recipe_resolved"] |= {"num_prompts_per_step": 256, "num_generations_per_prompt": 16}
    step = table_row(row)
    assert (step.generated, step.trained, step.updates) == (12288, 4096, 8)


def test_no_reference_without_a_penalty():
    row = changed()
    row["setting"]["recipe_resolved"]["kl_penalty"] = 0.0
    assert table_row(row).scorings == 1
    assert table_row(SYNC).scorings == 2


def test_drawn_lengths_keep_the_mean_and_never_pass_the_longest():
    step = table_row(SYNC)
    prompts, responses = drawn(step, 2048)
    assert responses.mean() == pytest.approx(3251.0, rel=0.01)
    assert (prompts + responses).max() <= 4096
    assert np.array_equal(responses, drawn(step, 2048)[1])


def test_bins_hold_whole_sequences():
    assert filled(np.array([3000, 3000, 3000]), 4096) == [3000, 3000, 3000]
    assert filled(np.array([2000, 1000, 1000, 96]), 4096) == [4096]
    assert filled(np.array([5000]), 4096) == [5000]


def test_more_devices_take_less_time():
    assert step_cost(table_row(changed(gpus=64))).seconds < step_cost(table_row(SYNC)).seconds


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"avg_seq_len": None}, "'avg_seq_len' is not given"),
        ({"gpu": "Atlas 900 A3 SuperPoD"}, "Atlas"),
        ({"algorithm": "SWE"}, "environment whose latency is not given"),
        ({"gpus": 24}, "24 devices are not whole replicas of 16"),
        ({"staleness_bound_steps": 1, "placement": "disaggregated"}, "how many devices generate"),
    ],
)
def test_what_cannot_be_expressed_is_named(setting, reason):
    outcome = rl.predict(changed(**setting))
    assert outcome.predicted is None
    assert reason in outcome.reason


def test_one_measurement_in_two_files_has_one_content():
    """The same row as the other file has it."""
    other = {
        "gpu": "H100-80GB",
        "n_gpus": 32,
        "model": {"name": "Qwen3-32B"},
        "avg_seq_len": 3251,
        "measured": {"step_time_s": 376},
    }
    assert rl.content(other) == rl.content(SYNC)
    assert rl.content({**other, "avg_seq_len": 3226}) != rl.content(SYNC)


def test_logs_of_verl_are_read():
    """eric-haibin-lin/verl-data gsm8k/qwen2-7b_math_megatron.log, its devices named as an H100's."""
    log = {
        "kind": "step_log",
        "model": "Qwen2-7B-Instruct",
        "algorithm": "GRPO, KL loss",
        "gpu": "H100",
        "n_gpus": 16,
        "train_engine": "megatron TP4 PP2 VPP2, micro 4/gpu, grad ckpt",
        "rollout_engine": "vllm TP2 util 0.6",
        "batch": {"train_batch_size": 1024, "rollout_n": 5, "ppo_mini_batch_size": 256},
        "lengths": {"max_response": 1024, "mean_prompt": 100.04},
        "metrics": {"step_s_excl_test": 301.205},
    }
    assert rl.measured(log) == 301.205
    assert "mean length of responses" in rl.predict(log).reason


def test_trainers_launch_layers_one_by_one_whatever_recipes_for_the_device_capture():
    row = changed(gpu="GB200 (NVL72)")
    traits = table_row(row).trainer(0.25).stack.training
    assert (
        traits.host_seconds_per_expert_layer
        == table_row(SYNC).trainer(0.25).stack.training.host_seconds_per_expert_layer
    )
    assert traits.tensor_overlap == 0.25


def test_log_probabilities_cost_the_engine_time_for_each_row():
    step = table_row(SYNC)
    assert step.engine.stack.serving.row_seconds > step.machine("vllm").stack.serving.row_seconds


def test_pipelines_pad_packed_sequences():
    step = table_row(SYNC)
    assert step.train.parallelism.pp > 1
    assert step_cost(step).seconds > step_cost(replace(step, padded=False)).seconds
