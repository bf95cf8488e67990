"""Reading inference records: labels of layouts, dtypes, and two published rows."""

from __future__ import annotations

from typing import Any

import pytest

from rpeg.errors import InputError
from rpeg.plan import Parallelism
from rpeg.validation.infer import predict
from rpeg.validation.serving_labels import degrees, schedules_ahead

# NVIDIA/TensorRT-LLM, docs/source/performance.md at v0.9, High Throughput / A100 (Apache-2.0).
STATIC: dict[str, Any] = {
    "id": "s", "source": "published", "mode": "static-batch throughput", "engine": "TensorRT-LLM v0.9",
    "gpu": "A100-80GB", "n_gpus": 1, "gpus_per_node": 8, "batch": 32, "isl": 128, "osl": 2048, "tp": 1, "pp": 1,
    "weight_precision": "fp16", "kv_precision": "fp16", "measured": {"output_tokens_per_s": 1459},
    "model": {"name": "Llama-2-7B", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008,
              "vocab": 32000, "gated_mlp": True, "tied_embeddings": False},
}  # fmt: skip
# ai-dynamo/aiconfigurator, silicon_sample.csv: Llama-3.1-70B, vLLM on H100, tensor parallel 4 (Apache-2.0).
LOOP: dict[str, Any] = {
    "id": "l", "source": "published", "mode": "closed-loop serving, fixed concurrency, aggregated", "engine": "vllm",
    "gpu": "H100-80GB", "n_gpus": 4, "gpus_per_node": 8, "concurrency": 16, "batch": 16, "isl": 1024, "osl": 1024,
    "tp": 4, "pp": 1, "attention_dp": 1, "moe_tp": 4, "ep": 1, "weight_precision": "fp8", "moe_precision": "fp8",
    "measured": {"tpot_ms": 13.19, "ttft_ms": 121},
    "model": {"name": "Llama-3.1-70B", "layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672,
              "vocab": 128256, "gated_mlp": True, "tied_embeddings": False},
}  # fmt: skip


def test_a_static_batch_is_predicted_as_its_seconds() -> None:
    outcome = predict(STATIC)
    assert outcome.kind == "infer_static"
    assert outcome.measured == pytest.approx(32 * 2048 / 1459)
    assert outcome.predicted == pytest.approx(outcome.measured, rel=0.25)
    assert outcome.cost is not None
    assert outcome.cost.seconds == pytest.approx(outcome.predicted)


def test_a_closed_loop_is_predicted_as_seconds_a_token() -> None:
    outcome = predict(LOOP)
    assert outcome.kind == "infer_loop"
    assert outcome.measured == pytest.approx(13.19e-3)
    assert outcome.predicted == pytest.approx(outcome.measured, rel=0.25)


def test_a_row_without_a_figure_says_so() -> None:
    outcome = predict({**LOOP, "measured": {}})
    assert outcome.measured is None
    assert outcome.reason == "no time per output token"


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ((8, 1, 8, 1), Parallelism(tp=8)),
        ((8, 1, 1, 8), Parallelism(tp=8, ep=8)),
        ((8, 1, 2, 4), Parallelism(tp=8, ep=4)),
        ((64, 1, 8, 8), Parallelism(tp=8, ep=8)),
        ((16, 1, 4, 4), Parallelism(tp=4, ep=4)),
        ((1, 64, 8, 8), Parallelism(dp=8, ep=8)),
        ((1, 8, 1, 8), Parallelism(dp=8, ep=8)),
        ((4, 4, 1, 16), Parallelism(dp=4, ep=4)),
        ((2, 1, 1, 0), Parallelism(tp=2)),
        ((1, 1, 1, 4), Parallelism(tp=4, ep=4)),
    ],
)
def test_labels_of_layouts(label: tuple[int, int, int, int], wanted: Parallelism) -> None:
    tp, dp, moe_tp, ep = label
    assert degrees({"tp": tp, "attention_dp": dp, "moe_tp": moe_tp, "ep": ep}) == wanted


def test_pools_counted_together_are_refused() -> None:
    with pytest.raises(InputError, match="tp = 48"):
        degrees({"tp": 48, "attention_dp": 1, "moe_tp": 48, "ep": 1})


@pytest.mark.parametrize(
    ("engine", "ahead"),
    [("vllm 0.12.0", False), ("vllm 0.14.1", True), ("vllm", True), ("sglang 0.5.9", True), ("trtllm 1.0.0rc3", True),
     ("TensorRT-LLM v0.9", False), ("something 0.1", True)],
)  # fmt: skip
def test_engines_that_schedule_ahead(engine: str, ahead: bool) -> None:
    assert schedules_ahead(engine) is ahead
