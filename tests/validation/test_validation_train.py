"""Rows of training as they are read: rules on words, defaults of frameworks, what cannot be expressed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rpeg.validation.train import job_of, predict, recompute_of

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "perf_train.jsonl"

# mosaicml/llm-foundry (Apache-2.0) at 8c8dd48f, scripts/train/benchmarking/README.md, "H100 80GB BF16 (Large Scale)".
MPT: dict[str, Any] = {
    "id": "a",
    "framework": "Composer/PyTorch FSDP1",
    "gpu": "H100-80GB",
    "n_gpus": 512,
    "gpus_per_node": 8,
    "interconnect": "NVSwitch in node",
    "model": {
        "name": "MPT-70b",
        "layers": 80,
        "hidden": 8192,
        "heads": 64,
        "kv_heads": 64,
        "ffn": 32768,
        "vocab": 50368,
        "gated_mlp": False,
        "tied_embeddings": True,
        "learned_pos": True,
    },
    "seq_len": 2048,
    "global_batch": 4096,
    "micro_batch": 8,
    "tp": 1,
    "pp": 1,
    "dp": 512,
    "zero_stage": 3,
    "recompute": "full",
    "precision": "bf16-amp(fp32 master)",
    "target": {"step_time_s": 16.27},
}


def row(**changes: Any) -> dict[str, Any]:
    return {**MPT, **changes}


def test_a_published_step_is_met_within_a_fifth() -> None:
    outcome = predict(MPT)
    assert outcome.predicted == pytest.approx(16.27, rel=0.2)
    assert outcome.cost is not None
    assert outcome.cost.find("recompute") is not None


def test_recompute_is_read_from_the_first_word() -> None:
    assert recompute_of("full (activation checkpointing)") == "full"
    assert recompute_of("selective-per-op") == "selective"
    assert recompute_of("none (default; not stated)") == "none"
    assert recompute_of("not stated") is None
    assert recompute_of("recipe-dependent: see the recipes") is None


def test_open_recomputation_is_what_memory_asks_for_in_eager_frameworks_alone() -> None:
    small = {"n_gpus": 64, "dp": 64, "global_batch": 512, "recompute": "not stated"}
    assert job_of(row(**small))[2].recompute == "full"
    assert job_of(row(**small, framework="NeMo/Megatron-Core"))[2].recompute == "none"


def test_sequence_parallelism_goes_with_the_framework_unless_printed() -> None:
    cut = {"tp": 8, "dp": 64}
    assert not job_of(row(**cut))[2].parallelism.sequence_parallel
    assert job_of(row(**cut, framework="torchtitan FSDP2"))[2].parallelism.sequence_parallel
    assert job_of(row(**cut, framework="NeMo/Megatron-Core"))[2].parallelism.sequence_parallel
    assert job_of(row(**cut, sequence_parallel=True))[2].parallelism.sequence_parallel


def test_sharding_groups_and_missing_degrees() -> None:
    layout = job_of(row(fsdp_group=8, dp=None))[2].parallelism
    assert (layout.dp, layout.zero, layout.shards) == (512, 3, 8)
    assert job_of(row(fsdp_group=512))[2].parallelism.shard == 0


def test_fixed_capacity_has_no_launch_that_waits() -> None:
    assert not job_of(row(notes="MoE: forced balanced routing; token-dropless."))[2].graphs
    assert job_of(row(model={**MPT["model"], "name": "MPT-70b (tokendrop)"}))[2].graphs


def test_gradients_travel_in_16_bits_unless_32_are_named() -> None:
    assert job_of(row(precision="bf16"))[2].precision.reduced == "bfloat16"
    assert job_of(row(precision="bf16 + fp32 grad accumulation"))[2].precision.reduced == "float32"


def test_what_a_row_lacks_or_cannot_be_is_the_reason() -> None:
    assert "no step time" in predict(row(target=None)).reason
    assert "'n_gpus'" in predict(row(n_gpus=None)).reason
    refused = predict(row(tp=3, n_gpus=513, dp=None, global_batch=8 * 171))
    assert refused.predicted is None
    assert "64 heads" in refused.reason
    assert "no multiple" in predict(row(tp=8, n_gpus=12)).reason


@pytest.mark.skipif(not DATA.exists(), reason="the published measurements are not beside this checkout")
def test_nearly_all_core_rows_are_predicted() -> None:
    rows = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
    outcomes = [predict(row) for row in rows if row["core"] and not row.get("suspect")][::4]
    predicted = [outcome for outcome in outcomes if outcome.predicted is not None]
    assert len(predicted) >= 0.95 * len(outcomes)
    errors = [abs(outcome.error) for outcome in predicted if outcome.error is not None]
    assert sum(errors) / len(errors) < 0.16


def test_adapters_are_read_from_the_task_and_the_method() -> None:
    assert job_of(row(task="LoRA finetuning", lora_rank=64))[2].lora_rank == 64
    assert job_of(row(method="lora"))[2].lora_rank is not None
    assert job_of(row(task="pretrain"))[2].lora_rank is None
    quantised = job_of(row(task="qlora"))[2]
    assert (quantised.lora_rank is not None, quantised.precision.weights) == (True, "nf4")
