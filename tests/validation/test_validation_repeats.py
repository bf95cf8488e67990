"""Measurements that several records state count once; the fuller record stands for them."""

from __future__ import annotations

from typing import Any

from rpeg.validation import evaluate
from rpeg.validation.outcome import Outcome
from rpeg.validation.read import Located
from rpeg.validation.repeats import repeated

# NeMo RL performance summary, Qwen3-32B on 32 H100, as two collections have it.
SHORT: dict[str, Any] = {
    "algorithm": "GRPO",
    "gpu": "H100-80GB",
    "n_gpus": 32,
    "model": {"name": "Qwen3-32B"},
    "avg_seq_len": 3251,
    "measured": {"step_time_s": 376},
}
LONG: dict[str, Any] = {
    "kind": "rl_step",
    "setting": {
        "algorithm": "GRPO",
        "gpu": "H100-80GB (DGX-H100)",
        "gpus": 32,
        "model": "Qwen/Qwen3-32B",
        "avg_seq_len": 3251.0,
        "recipe_resolved": {"num_prompts_per_step": 64, "train_tp": 4, "gen_tp": 4},
    },
    "measured": {"step_time_s": 376.0},
}


def test_the_fuller_record_stands_for_both() -> None:
    assert repeated([SHORT, LONG]) == {0}
    assert repeated([LONG, SHORT]) == {1}
    assert repeated([SHORT, LONG, SHORT]) == {0, 2}


def test_other_measurements_of_the_same_setting_stay() -> None:
    later = {**SHORT, "measured": {"step_time_s": 400}}
    assert repeated([SHORT, later]) == frozenset()


def test_records_without_a_measurement_and_other_kinds_stay() -> None:
    nothing = {**LONG, "measured": {}}
    training = {"target": {"step_time_s": 1.0}, "seq_len": 8, "global_batch": 1}
    assert repeated([nothing, nothing, training, training]) == frozenset()


def test_an_evaluation_counts_them_once_and_says_so() -> None:
    def predict(record: Any) -> Outcome:
        return Outcome("", "", "rl", "", 376.0, 300.0)

    rows = [Located("a:1", SHORT), Located("b:1", LONG)]
    found = evaluate(rows, {"rl": predict})
    assert [one.row.where for one in found.judged] == ["b:1"]
    assert found.others == {"rl: measurements that another record states too, counted once": 1}
