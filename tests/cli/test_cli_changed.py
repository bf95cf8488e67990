"""`rpeg plan` on what would make a job fit, and on what its plan is sensitive to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import rpeg.search
from rpeg.cli.main import make_app
from rpeg.search import Problem
from rpeg.search.changes import ShorterTail

JOB = """
name: small
algorithm: {name: grpo}
models: {actor: {path: %s}}
cluster: {h100: 1}
batch: {prompts: 8, samples_per_prompt: 2, minibatches: 2, microbatch: 4}
lengths:
  max_prompt: 128
  max_response: 256
  expected_prompt: {mean: 60}
  expected_response: {mean: 60, p95: 120}
"""


def plan(folder: Path, actor: str, *options: str) -> Result:
    job = folder / "job.yaml"
    job.write_text(JOB % actor)
    return CliRunner().invoke(make_app(), ["plan", str(job), "--out", str(folder / "plan.json"), *options])


def test_what_would_make_it_fit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpeg.search, "can_fit", lambda problem: len(problem.cluster) > 1)
    found = plan(tmp_path, "Qwen2.5-7B")
    assert found.exit_code == 2
    assert "GiB in phase" in found.stderr
    assert "It would fit with any one of these:\n  2 devices (1 device more" in found.stderr


def test_interrupted_it_tells_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def can_fit(problem: Problem) -> bool:
        if problem.cluster.kinds[0].name != "h100-sxm":
            raise KeyboardInterrupt
        return len(problem.cluster) > 2

    monkeypatch.setattr(rpeg.search, "can_fit", can_fit)
    found = plan(tmp_path, "Qwen2.5-7B")
    assert found.exit_code == 2
    assert found.stderr.count("\n  ") == 1
    assert "4 devices (3 devices more" in found.stderr


def test_what_a_plan_is_sensitive_to_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["rpeg.search.sensitivity"], "usual_changes", lambda _: (ShorterTail(),))
    found = plan(tmp_path, "Qwen2.5-0.5B", "--sensitivity", "--no-search", "--json")
    assert found.exit_code == 0, found.output
    (effect,) = json.loads(found.stdout)["what_if"]
    assert effect["words"].startswith("a shorter tail of responses")
    assert effect["after_seconds"] == min(effect["kept_seconds"], effect["replanned_seconds"])
    assert effect["after_seconds"] < effect["before_seconds"]
