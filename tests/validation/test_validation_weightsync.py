"""Rows of weight transfers: three forms of record, and what they lack."""

from __future__ import annotations

from typing import Any

import pytest

from rpeg.validation import weightsync
from rpeg.validation.weightsync import _placement

# MoonshotAI/checkpoint-engine README, section Benchmark.
STAGED: dict[str, Any] = {
    "id": "staged",
    "source": "checkpoint-engine README",
    "mechanism": "CPU-resident sharded weights -> H2D -> broadcast -> CUDA IPC reload into vLLM",
    "model": "Qwen3-235B-A22B",
    "weight_precision": "bf16",
    "gpu": "H800-80GB",
    "n_gpus": 8,
    "infer_tp": 8,
    "measured": {"gather_metas_s": 0.33, "update_broadcast_s": 6.22, "bucket_gib": 2.67, "update_p2p_s": 7.1},
}
# The same in another file.
AGAIN: dict[str, Any] = {
    "kind": "weight_sync",
    "source": "MoonshotAI/checkpoint-engine README.md",
    "setting": {
        "framework": "checkpoint-engine + vLLM",
        "model": "Qwen3-235B-A22B-Instruct-2507 (BF16)",
        "gpu": "H800",
        "gpus": 8,
        "tp": 8,
    },
    "measured": {"update_broadcast_s": 6.22, "update_p2p_s": 7.1, "bucket_gib": 2.67},
}
# verl docs/advance/delta_weight_sync.md.
PAIR: dict[str, Any] = {
    "kind": "weight_sync",
    "model": "Qwen2.5-32B",
    "gpu": "H100",
    "placement": "2+2 nodes, offload off",
    "rollout_engine": "sglang",
    "metrics": {"delta_sharded_s": [6.2], "nccl_full_broadcast_s": [14.2, 14.4]},
}


def test_one_measurement_in_two_files_has_one_content():
    assert weightsync.content(STAGED) == weightsync.content(AGAIN)
    assert weightsync.content(STAGED) != weightsync.content(PAIR)


def test_a_range_is_read_as_its_middle():
    assert weightsync.predict(PAIR).measured == pytest.approx(14.3)


@pytest.mark.parametrize(
    ("row", "placement"),
    [
        (weightsync.flattened(STAGED), (8, 8, 8, "staged")),
        (weightsync.flattened(AGAIN), (8, 8, 8, "staged")),
        (PAIR, (16, 16, 1, "broadcast")),
        ({"placement": "8+2 nodes, gen TP16"}, (64, 16, 16, "broadcast")),
        ({"mechanism": "NCCL broadcast, FSDP ws=2 -> 30 rollout receivers"}, (2, 30, 1, "broadcast")),
        ({"trainer_ranks": 4, "rollout_ranks": 4}, (4, 4, 1, "broadcast")),
    ],
)
def test_who_sends_to_whom(row, placement):
    assert _placement(row) == placement


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu": "2x16 Ascend 910C"}, "Ascend"),
        ({"infer_tp": None, "mechanism": "NCCL"}, "how many devices train and how many receive"),
    ],
)
def test_what_cannot_be_expressed_is_named(change, reason):
    outcome = weightsync.predict({**STAGED, **change})
    assert outcome.predicted is None
    assert reason in outcome.reason


def test_less_than_the_links_allow_is_no_whole_transfer():
    """verl docs/advance/fully_async.md: 15 GB to each of four H20 in 0.02 s, of which the rest ran in the background."""
    row = {
        "mechanism": "NCCL",
        "model": "Qwen2.5-Math-7B",
        "gpu": "H20-96GB",
        "trainer_ranks": 4,
        "rollout_ranks": 4,
    }
    assert "not a whole transfer" in weightsync.predict({**row, "measured": {"time_s": 0.02}}).reason
    assert weightsync.predict({**row, "measured": {"time_s": 0.12}}).predicted is not None


def test_a_staged_transfer_loads_each_tensor_while_others_arrive():
    outcome = weightsync.predict(STAGED)
    assert outcome.cost is not None
    assert [part.name for part in outcome.cost.children] == ["to device", "broadcast and load", "hand over"]
    assert 0.5 < outcome.predicted / 6.22 < 1.5
