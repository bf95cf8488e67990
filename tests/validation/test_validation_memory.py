"""Records of memory: words into settings, gauges into bytes, and a few rows as their sources print them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rpeg.units import GIB
from rpeg.validation.memory import measured_bytes, predict
from rpeg.validation.memory_settings import job_of

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "perf_memory.jsonl"

# Hugging Face Ultra-Scale Playbook, benchmark sweep (nanotron): Llama 1B on 8 H100, no ZeRO: 36.7 GB
NANOTRON: dict[str, Any] = {
    "id": "n",
    "source": "Ultra-Scale Playbook",
    "framework": "nanotron",
    "gpu": "H100-80GB",
    "n_gpus": 8,
    "gpus_per_node": 8,
    "model": {
        "name": "nanotron-llama-1B",
        "layers": 16,
        "hidden": 2048,
        "heads": 32,
        "kv_heads": 32,
        "ffn": 8192,
        "vocab": 131072,
        "gated_mlp": True,
        "tied_embeddings": True,
    },
    "seq_len": 4096,
    "global_batch": 256,
    "micro_batch": 1,
    "grad_accum": 32,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "dp": 8,
    "zero_stage": 0,
    "recompute": "none (nanotron default; not stated)",
    "precision": "bf16 + fp32 grad accumulation (ACCUMULATE_GRAD_IN_FP32=True)",
    "measured": {"peak_mem": 36.7, "unit": "GB as printed"},
    "mem_basis": "torch max_memory (allocated or reserved: not stated; nanotron logs both)",
}

# LitGPT tutorials/resource-tables.md: LoRA of Llama 2 13B, micro-batch 2, on one A100 of 40 GB: out of memory
LITGPT: dict[str, Any] = {
    "id": "l",
    "source": "LitGPT",
    "framework": "LitGPT",
    "task": "Finetuning with LoRA on 1 GPU",
    "gpu": "A100-40GB",
    "n_gpus": 1,
    "model": {"name": "Llama 2 13 B"},
    "seq_len": 1304,
    "micro_batch": 2,
    "trainable_params": 6553600,
    "precision": "bf16-true",
    "status": "oom",
    "mem_basis": "torch.cuda.max_memory_allocated",
}


def test_a_row_of_the_sweep_is_met() -> None:
    outcome = predict(NANOTRON)
    assert outcome.measured == 36.7 * GIB
    assert outcome.unit == "B"
    assert outcome.predicted == pytest.approx(outcome.measured, rel=0.1)
    assert outcome.fits
    assert outcome.predicted_fits


def test_a_run_that_did_not_fit_is_predicted_not_to() -> None:
    outcome = predict(LITGPT)
    assert outcome.measured is None
    assert outcome.fits is False
    assert outcome.predicted_fits is False
    assert outcome.confirmed
    smaller = predict({**LITGPT, "micro_batch": 1, "status": "ok"})
    assert smaller.fits
    assert smaller.predicted_fits


def test_gauges_differ() -> None:
    bases = ("max_memory_allocated", "max_memory_reserved", "nvidia-smi")
    sizes = [predict({**NANOTRON, "mem_basis": basis}).predicted for basis in bases]
    assert None not in sizes
    assert sizes[0] < sizes[1] < sizes[2]  # type: ignore[operator]


def test_units_as_frameworks_print_them() -> None:
    def size(unit: str, framework: str = "torchtitan") -> float | None:
        return measured_bytes({"measured": {"peak_mem": 2.0, "unit": unit}, "framework": framework})

    assert size("bytes") == 2.0
    assert size("GiB") == size("GB as printed") == 2 * GIB
    assert size("GB as printed", "LitGPT") == 2e9
    assert measured_bytes({"status": "oom"}) is None


def test_words_become_settings() -> None:
    lora = job_of(LITGPT)
    assert lora.execution.lora_rank
    assert lora.architecture.layers == 40
    assert not lora.execution.precision.master
    qlora = job_of({**LITGPT, "quantization": "bnb.nf4-dq"}).execution.precision
    assert qlora.weights == "nf4-double"
    several = job_of({**LITGPT, "n_gpus": 4}).execution
    assert (several.parallelism.zero, several.parallelism.dp, several.recompute) == (3, 4, "full")
    assert job_of({**NANOTRON, "recompute": "selective-per-op"}).execution.recompute == "selective"
    assert job_of(NANOTRON).execution.lora_rank is None
    assert job_of({**NANOTRON, "optimizer": "AdamW8bit"}).execution.precision.moments == "int8"
    assert job_of({**NANOTRON, "offload": "optimizer"}).execution.offload == "optimizer"
    fsdp = job_of({**NANOTRON, "zero_stage": 3, "fsdp_group": 4}).execution
    assert (fsdp.precision.weights, fsdp.precision.master, fsdp.parallelism.shards) == ("float32", False, 4)


def test_what_cannot_be_expressed_is_named() -> None:
    assert "seq_len" in predict({**NANOTRON, "seq_len": None}).reason
    assert "Nonesuch" in predict({**LITGPT, "model": {"name": "Nonesuch 9B"}}).reason
    assert "16 layers" in predict({**NANOTRON, "pp": 128, "n_gpus": 1024}).reason


def test_figures_of_the_published_rows() -> None:
    """What the issue asks of core rows; no tunable was fitted on them."""
    if not SHARED.exists():
        pytest.skip(f"no {SHARED}")
    rows = [json.loads(line) for line in SHARED.read_text(encoding="utf-8").splitlines()]
    core = [predict(row) for row in rows if row.get("core") and not row.get("suspect")]
    errors = [abs(outcome.error) for outcome in core if outcome.error is not None]
    assert len(errors) >= 0.95 * len(core)
    assert sum(errors) / len(errors) <= 0.12
    confirmed = [predict(row) for row in rows if row.get("status") == "oom"]
    assert sum(outcome.predicted_fits is not False for outcome in confirmed) <= 1
    worked = [outcome for outcome in core if outcome.fits]
    assert sum(outcome.predicted_fits is False for outcome in worked) <= 0.03 * len(worked)
