"""Every algorithm makes a job that is checked, and a plan that is simulated and proven."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from plans import make_plan
from rpeg import algorithms
from rpeg.errors import InputError
from rpeg.ir import Kind
from rpeg.job import Job, parse_job
from rpeg.search import from_job
from rpeg.sim import simulate
from rpeg.verify import prove
from samples_of_plans import TableCosts

EXAMPLES = Path(__file__).parents[2] / "examples"
CORRECTED = {
    "importance": "token",
    "importance_normalize": True,
    "reject": "sequence_mean",
    "reject_estimator": "k3",
    "reject_high": 1.0,
    "staleness_bound": 1,
    "truncated": "mask",
}


def job_of(name: str, **hyper: Any) -> Job:
    value = yaml.safe_load((EXAMPLES / "grpo.yaml").read_text())
    value |= {"algorithm": {"name": name, **hyper}, "cluster": {"cpu": 1}}
    return parse_job(yaml.safe_dump(value), "job.yaml", EXAMPLES)


@pytest.mark.parametrize("hyper", [{}, CORRECTED], ids=["plain", "corrected"])
@pytest.mark.parametrize("name", algorithms.names())
def test_from_job_to_proof(name: str, hyper: dict[str, Any]) -> None:
    graph = from_job(job_of(name, **hyper), 8 * 2**30).graph
    blocks = {s.name: (0, 1) for s in graph.stages if s.kind is not Kind.HOST}
    trace = simulate(make_plan(graph, blocks), TableCosts({}), 2)
    proof = prove(trace)
    assert proof.holds, proof


@pytest.mark.parametrize("name", ["grpo", "dapo", "rloo", "gspo"])
def test_groups_need_more_than_one_response(name: str) -> None:
    value = yaml.safe_load((EXAMPLES / "grpo.yaml").read_text())
    value |= {"algorithm": {"name": name}, "cluster": {"cpu": 1}}
    value["batch"]["samples_per_prompt"] = 1
    with pytest.raises(InputError, match="compares the responses to a prompt"):
        parse_job(yaml.safe_dump(value), "job.yaml", EXAMPLES)


def test_hyperparameters_are_checked_by_key() -> None:
    with pytest.raises(InputError, match="Did you mean 'overlong_length'"):
        job_of("dapo", overlong_lenght=9)
    with pytest.raises(InputError, match="overlong_buffer is 4096"):
        job_of("dapo", overlong_length=9)
