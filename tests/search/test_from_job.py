"""From a job file to a problem."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.job import Job, parse_job
from rpeg.search import Problem, from_job

EXAMPLE = (Path(__file__).parents[2] / "examples" / "ppo.yaml").read_text()
MEMORY = 8 * 2**30


def _problem(*changes: tuple[str, str]) -> Problem:
    return from_job(_job(*changes), MEMORY)


def _job(*changes: tuple[str, str]) -> Job:
    text = EXAMPLE.replace("cluster: {cpu: 2}", "cluster: {cpu: 1}")  # machines with one core run tests too
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse_job(text)


def test_the_batch_is_the_workload() -> None:
    w = _problem().workload
    assert (w.prompts, w.samples_per_prompt, w.minibatches, w.epochs) == (16, 8, 4, 1)
    assert w.response_lengths.maximum <= 22
    assert w.prompt_lengths.maximum <= 32


def test_the_graph_has_the_evaluation_that_is_asked_for() -> None:
    assert _problem().graph.stage("evaluate").every == 20
    assert _problem().facts.evaluation_prompts == 128
    without = _problem(("evaluation: {every: 20, prompts: 128}", "evaluation: {every: 0}"))
    assert "evaluate" not in {s.name for s in without.graph.stages}


def test_every_model_has_its_shape() -> None:
    problem = _problem()
    assert set(problem.facts.architectures) == {"actor", "critic", "reference"}
    assert problem.facts.architectures["actor"].layers >= 1


def test_devices_share_the_memory_of_the_machine() -> None:
    cluster = _problem().cluster
    assert len(cluster) == 1
    assert cluster.device(0).kind.memory_bytes == MEMORY


def test_permissions_are_the_jobs() -> None:
    assert _problem().permissions.choices == (0,)
    allowed = _problem(("staleness: 0 ", "staleness: 2 "))
    assert allowed.permissions.choices == (0, 1, 2)
    wished = _problem(
        ("staleness: 0 ", "staleness: 2 "),
        ("# plan: {staleness: 1, freshness: exact}", "plan: {staleness: 1}"),
    )
    assert wished.permissions.choices == (1,)


def test_what_nobody_said_is_said_to_be_assumed() -> None:
    problem = _problem()
    assert any("nothing was measured" in sentence for sentence in problem.assumptions)


def test_expected_lengths_are_taken_where_they_are_given() -> None:
    lines = [line for line in EXAMPLE.splitlines() if "expected_response" in line]
    given = ("  max_response: 22", "  expected_response: {mean: 6, p95: 12}\n  max_response: 22")
    text = EXAMPLE
    for line in lines:
        text = text.replace(line + "\n", "")
    text = text.replace(*given).replace("cluster: {cpu: 2}", "cluster: {cpu: 1}")
    problem = from_job(parse_job(text), MEMORY)
    assert problem.workload.response_lengths.mean == pytest.approx(6, rel=0.02)
    assert not any("half of max_response" in sentence for sentence in problem.assumptions)
