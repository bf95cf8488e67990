"""Algorithms on the real runtime, one device in this process unless they need more."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg import algorithms
from rpeg.job import Job
from rpeg.job.algorithm import parse
from rpeg.job.rewards import Reward
from rpeg.runtime import RunDirectory
from rpeg.verify import prove_run
from runtime.runs import counting, make_job, plan_for, run, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def job_of(model: Path, output: Path, steps: int = 2, **section: object) -> Job:
    job = make_job(model, output, algorithm=str(section["name"]), steps=steps)
    return job.model_copy(update={"algorithm": parse(section)})


@pytest.mark.parametrize("name", algorithms.names())
def test_every_algorithm_updates_the_policy(name: str, model: Path, tmp_path: Path) -> None:
    job = job_of(model, tmp_path / "run", name=name)
    job = job.model_copy(update={"reward": (Reward(**counting(model)),)})
    ran = run(job, plan_for(job, rest=(0,)), in_process=True)
    assert prove_run(ran.traces).findings == ()
    assert all(record.metrics["actor/grad_norm"] > 0 for record in ran.records)


def test_two_steps_with_every_correction(model: Path, tmp_path: Path) -> None:
    """Shaped rewards, masks and weights reach the trainer, whose denominators are of what is trained on."""
    job = job_of(
        model,
        tmp_path / "run",
        name="dapo",
        dynamic_sampling=False,
        overlong_length=6,
        overlong_buffer=5,
        importance="token",
        reject="sequence_mean",
        reject_estimator="k3",
        reject_high=1.0,
        staleness_bound=1,
    )
    ran = run(job, plan_for(job, rest=(0,)), in_process=True)
    assert prove_run(ran.traces).findings == ()
    last = RunDirectory(ran.outcome.directory).steps_recorded()[-1]
    assert last["loss_mask"] == last["staleness_0"] == 1
    assert last["importance_weights"] == pytest.approx(1)  # the same engine, precision and version
    assert last["behaviour_gap_max"] == pytest.approx(0, abs=1e-9)
    assert last["actor/grad_norm"] > 0


def test_an_adaptive_coefficient_survives_a_resume(model: Path, tmp_path: Path) -> None:
    section: dict[str, object] = {"name": "rloo", "kl_target": 0.01, "kl_horizon": 40, "kl_coefficient": 0.1}
    first = job_of(model, tmp_path / "run", 1, **section)
    run(first, plan_for(first, rest=(0,)), in_process=True)
    resumed = run(job_of(model, tmp_path / "run", 2, **section), None, resume=True, in_process=True)
    used = [r["kl_coefficient"] for r in RunDirectory(resumed.outcome.directory).steps_recorded()]
    assert used[0] == 0.1
    assert used[1] == pytest.approx(0.1 * (1 - 0.2 * 16 / 40))  # no KL before the first update


@pytest.mark.slow
def test_a_greedy_response_is_the_baseline_of_the_sampled_ones(model: Path, tmp_path: Path) -> None:
    """Two generations a step: rewards of other responses, joined by sample, and a proof that keeps them apart."""
    job = job_of(model, tmp_path / "run", name="remax")
    ran = run(job, plan_for(job, {"generate": (0,), "baseline": (1,)}, rest=(0,)))
    assert prove_run(ran.traces).findings == ()
    last = RunDirectory(ran.outcome.directory).steps_recorded()[-1]
    assert last["baseline_rewards_of"] == last["samples"] == 16
