"""A run whose responses come from vLLM, where it is installed: in one process, through the same runtime."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rpeg.plan import Plan
from rpeg.verify import prove_run
from runtime.runs import make_job, plan_for, run, tiny_model

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
pytest.importorskip("vllm", reason="vLLM is not installed")
pytestmark = pytest.mark.slow

LATER = ("reward", "reference", "old_logprob", "value", "advantage", "train_actor", "train_critic")
STALE = {
    "transforms": ("async{stage=generate,staleness=1,freshness=exact}",),
    "shifts": dict.fromkeys(LATER, 1),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"), hidden_size=64)  # vLLM wants heads of 32 at least


def on_vllm(plan: Plan) -> Plan:
    return replace(
        plan,
        assignments=tuple(
            replace(a, backend="vllm") if a.stage in ("generate", "evaluate") else a for a in plan.assignments
        ),
    )


@pytest.mark.parametrize(
    "options", [{}, STALE, STALE | {"offload": {"generate": "all"}}], ids=["in place", "stale", "sleeps"]
)
def test_responses_come_from_the_weights_that_the_run_says(options, model: Path, tmp_path: Path) -> None:
    """With a learning rate that changes everything at once: the trainer finds the log-probabilities that vLLM noted."""
    job = make_job(
        model,
        tmp_path / "run",
        dtype="float32",
        steps=4,
        optimizer={"lr": 0.05},
        sampling={"temperature": 1.2},
    )
    done = run(job, on_vllm(plan_for(job, rest=(0,), **options)), in_process=True)
    assert prove_run(done.traces).findings == ()
    stale = bool(options.get("transforms"))
    assert [r.metrics["staleness_max"] for r in done.records] == [0, *[float(stale)] * 3]
    if not stale:
        assert all(abs(r.metrics["behaviour_kl"]) < 1e-4 for r in done.records)


def test_in_a_run_of_several_workers_it_has_a_process_of_its_own(model: Path, tmp_path: Path) -> None:
    job = make_job(model, tmp_path / "run", dtype="float32", steps=3, optimizer={"lr": 0.05})
    blocks = {"generate": (0, 1)}
    done = run(job, on_vllm(plan_for(job, blocks, rest=(1,))))
    assert prove_run(done.traces).findings == ()
    assert all(abs(r.metrics["behaviour_kl"]) < 1e-4 for r in done.records)
