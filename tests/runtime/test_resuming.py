"""Runs that are interrupted and resumed: the same numbers as without interruption, the same bounds, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rpeg.job import Job
from rpeg.plan import Plan
from rpeg.runtime import RunDirectory
from rpeg.verify import prove_run
from runtime.runs import Ran, make_job, plan_for, run, tiny_model

APART = {"generate", "prompts"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def asynchronous(job: Job, staleness: int, freshness: str) -> Plan:
    """On one device, with generation `staleness` steps ahead of what follows; 0 is synchronous."""
    if staleness == 0:
        return plan_for(job, rest=(0,))
    shifts = {s.name: staleness for s in job.algorithm.graph().stages if s.name not in APART}
    transform = f"async{{stage=generate,staleness={staleness},freshness={freshness}}}"
    return plan_for(job, rest=(0,), transforms=(transform,), shifts=shifts)


def in_stretches(model: Path, path: Path, ends: tuple[int, ...], staleness: int, freshness: str) -> Ran:
    """A run of as many steps as the last end says, interrupted at the others."""
    ran = None
    for steps in ends:
        job = make_job(
            model,
            path / "run",
            algorithm="grpo",
            steps=steps,
            allow={"staleness": 2},
            checkpoint={"every": 2},
        )
        plan = None if ran else asynchronous(job, staleness, freshness)
        ran = run(job, plan, resume=ran is not None, in_process=True)
    assert ran is not None
    return ran


@pytest.fixture(scope="module", params=[0, 1, 2])
def straight(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Five steps without interruption, of each staleness."""
    return in_stretches(model, tmp_path_factory.mktemp("straight"), (5,), request.param, "exact")


@pytest.mark.parametrize("ends", [(2, 5), (1, 2, 3, 5)], ids=["one interruption", "three interruptions"])
def test_exact_runs_resume_bit_for_bit(
    ends: tuple[int, ...], model: Path, straight: Ran, tmp_path: Path
) -> None:
    """Learning rates too: they follow the updates that were made, not the attempts."""
    delays = [edge.delay for edge in straight.traces[0].plan.graph.weights_into("generate")]
    resumed = in_stretches(model, tmp_path, ends, max(delays) - 1, "exact")
    assert [trace.first_step for trace in resumed.traces] == [0, *ends[:-1]]
    assert prove_run(resumed.traces).findings == ()
    assert straight.weights.keys() == resumed.weights.keys()
    for role, tensors in straight.weights.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, resumed.weights[role][name]), (role, name)
    kept, whole = (RunDirectory(ran.outcome.directory).steps_recorded() for ran in (resumed, straight))
    for one, other in zip(kept, whole, strict=True):
        for metric in ("step", "reward", "actor/loss", "actor/lr", "versions"):
            assert one[metric] == other[metric]
        assert one.get("staleness_max") == other.get("staleness_max")
