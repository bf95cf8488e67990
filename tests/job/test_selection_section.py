"""The `selection` section: defaults, and what it refuses with a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from rpeg.cli.main import make_app
from rpeg.errors import InputError
from rpeg.ir import KEPT
from rpeg.job import Job, dump_job, parse_job
from rpeg.search import from_job

EXAMPLES = Path(__file__).parents[2] / "examples"


def job_of(name: str, hyper: dict[str, Any] | None = None, **sections: object) -> Job:
    value = yaml.safe_load((EXAMPLES / "grpo.yaml").read_text())
    value |= {"algorithm": {"name": name, **(hyper or {})}, "cluster": {"cpu": 1}, **sections}
    return parse_job(yaml.safe_dump(value), "job.yaml", EXAMPLES)


def test_dapo_selects_and_grpo_may() -> None:
    assert job_of("dapo").graph().selector is not None
    assert job_of("dapo", {"dynamic_sampling": False}).graph().selector is None
    assert job_of("grpo").graph().selector is None
    assert job_of("grpo", {"dynamic_sampling": True}).graph().selector is not None


def test_the_workload_has_the_rounds() -> None:
    job = job_of("dapo", selection={"max_rounds": 3, "round_prompts": 5, "expected_rejected": 0.25})
    problem = from_job(job, 2**33)
    w = problem.workload
    assert (w.rounds, w.round_prompts, w.asked_prompts) == (3, 5, 15)
    assert w.selection is not None
    assert w.selection.rejected == 0.25
    assert "selection: 25% of groups are rejected (selection.expected_rejected)" in problem.assumptions
    default = from_job(job_of("dapo"), 2**33).workload
    assert default.round_prompts == default.prompts


def test_a_kept_leftover_is_one_publication_late() -> None:
    with pytest.raises(InputError, match=r"allow.staleness is 0. Set allow.staleness: 1, or drop"):
        job_of("dapo", selection={"leftover": "keep"}, allow={"staleness": 0})
    with pytest.raises(InputError, match=r"Set allow.staleness: 2, or drop"):
        job_of("dapo", selection={"leftover": "keep"}, allow={"staleness": 1}, plan={"staleness": 1})
    job = job_of("dapo", selection={"leftover": "keep"}, allow={"staleness": 1})
    graph = job.graph()
    assert graph.selector is not None
    assert KEPT in graph.selector.gives
    assert from_job(job, 2**33).permissions.choices == (0,)


@pytest.mark.parametrize(
    ("name", "section", "words"),
    [
        ("ppo", {"max_rounds": 3}, "ppo selects no groups: choose grpo or dapo"),
        ("grpo", {"max_rounds": 3}, "set algorithm.dynamic_sampling: true"),
        ("dapo", {"max_rounds": 0}, "max_rounds"),
        ("dapo", {"max_round": 3}, "Did you mean 'max_rounds'"),
        ("dapo", {"expected_rejected": 1.0}, "expected_rejected"),
        ("dapo", {"keep": "mine"}, "must be python:package.module:function"),
        ("dapo", {"keep": "python:no_such_module:keep"}, "no module 'no_such_module'"),
    ],
)
def test_what_cannot_be_is_refused(name: str, section: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        job_of(name, selection=section)


def test_check_says_what_a_step_trains_on(tmp_path: Path) -> None:
    value = yaml.safe_load((EXAMPLES / "grpo.yaml").read_text())
    value |= {"algorithm": {"name": "dapo"}, "cluster": {"cpu": 1}, "selection": {"max_rounds": 3}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(value))
    told = CliRunner().invoke(make_app(), ["check", str(file)]).output
    words = "16 groups a step whose rewards differ, of up to 3 rounds of 16 prompts; beyond the quota: drop"
    assert words in " ".join(told.split())


def test_a_job_is_read_back_as_it_was_understood() -> None:
    for job in (job_of("ppo"), job_of("dapo", selection={"max_rounds": 2})):
        assert parse_job(dump_job(job), "job.yaml", EXAMPLES) == job
