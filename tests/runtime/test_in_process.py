"""Workers in one process without Ray: the numbers of the run through Ray, bit for bit."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from rpeg.errors import InputError
from rpeg.plan import Plan
from rpeg.runtime import StepRecord
from rpeg.verify import prove_run
from runtime.runs import make_job, plan_for, run, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def stale(staleness: int) -> dict[str, object]:
    """How `plan_for` makes generation use weights of so many steps ago."""
    if not staleness:
        return {}
    later = ("reward", "reference", "old_logprob", "value", "advantage", "train_actor", "train_critic")
    return {
        "transforms": (f"async{{stage=generate,staleness={staleness},freshness=exact}}",),
        "shifts": dict.fromkeys(later, staleness),
    }


def without_times(record: StepRecord) -> dict[str, object]:
    return {k: v for k, v in record.to_json().items() if k not in ("seconds", "tokens_per_second")}


@pytest.mark.parametrize("staleness", [0, 1])
def test_the_numbers_are_those_of_a_run_through_ray(
    staleness: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"dtype": "float32", "steps": 4, "evaluation": {"every": 2, "prompts": 4}}
    jobs = [make_job(model, tmp_path / name, **changes) for name in ("ray", "here")]  # type: ignore[arg-type]
    plan: Plan = plan_for(jobs[0], rest=(0,), **stale(staleness))  # type: ignore[arg-type]
    ray = run(jobs[0], plan)
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    here = run(jobs[1], plan, in_process=True)
    assert prove_run(here.traces).findings == ()
    assert [without_times(r) for r in here.records] == [without_times(r) for r in ray.records]
    assert here.outcome.evaluations == ray.outcome.evaluations
    assert [r.metrics["staleness_max"] for r in here.records] == [0, *[staleness] * 3]
    for role, tensors in ray.weights.items():
        for key, tensor in tensors.items():
            torch.testing.assert_close(here.weights[role][key], tensor, rtol=0, atol=0, msg=key)


def test_a_plan_of_two_devices_is_refused(model: Path, tmp_path: Path) -> None:
    job = make_job(model, tmp_path / "run")
    with pytest.raises(InputError, match=r"2 devices and one process carries 1.*cluster: {cpu: 1}"):
        run(job, plan_for(job), in_process=True)
    assert not (tmp_path / "run").exists()
