from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from job_files import changed, write_job

import rpeg
from rpeg.errors import InputError
from rpeg.job import dump_job, load_job, parse_job
from rpeg.job.fields import number, whole
from rpeg.job.schema import Job

VALUES = st.none() | st.text(alphabet="ab1:{[-é\x1b") | st.floats() | st.lists(st.integers(), max_size=2)


def test_defaults_and_derived_numbers(tmp_path: Path) -> None:
    job = load_job(write_job(tmp_path))
    assert job.optimizer.lr == 3e-4, "YAML reads 3e-4 as text"
    assert job.dtype == "float32"
    assert (job.batch.samples, job.batch.minibatch_samples) == (8, 4)
    assert job.algorithm.name == "ppo"
    assert job.algorithm.hyper.lam == 0.9
    assert job.models.of("critic") == job.models.actor
    assert job.models.source("reference").directory == (tmp_path / "model").resolve()


def test_paths_start_at_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_job(tmp_path, {"output": "runs/x"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    job = load_job(path)
    assert job.data.train == str(tmp_path / "train.jsonl")
    assert job.models.actor.path == str(tmp_path / "model")
    assert job.output == str(elsewhere / "runs/x"), "output starts where the program was started"


def test_dumped_job_reads_back_equal_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = load_job(write_job(tmp_path, {"allow": {"staleness": 1}, "plan": {"staleness": 1}}))
    monkeypatch.chdir("/")
    assert parse_job(dump_job(job), base_dir="/") == job


def test_a_reward_function_beside_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "my_reward_beside.py").write_text(
        "raise SystemExit\ndef score(prompt, response, answer): ...\n"
    )
    job = load_job(write_job(tmp_path, {"reward.name": "python:my_reward_beside:score"}))
    assert job.reward[0].import_from == str(tmp_path), "and checking did not run it"


def test_frozen(tmp_path: Path) -> None:
    job = load_job(write_job(tmp_path))
    with pytest.raises(ValueError, match="frozen"):
        job.batch.prompts = 1  # type: ignore[misc]


def test_every_key_says_what_it_means() -> None:
    """Descriptions go into messages."""

    def check(section: type) -> None:
        for name, field in section.model_fields.items():  # type: ignore[attr-defined]
            assert field.description, f"{section.__name__}.{name}"
            if hasattr(field.annotation, "model_fields"):
                check(field.annotation)

    check(Job)


@settings(deadline=None, max_examples=50)
@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_in_any_notation(value: int) -> None:
    assert whole(value) == whole(float(value)) == whole(str(value)) == value


@settings(deadline=None, max_examples=50)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_as_text(value: float) -> None:
    assert number(repr(value)) == value


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.sampled_from(["steps", "batch", "cluster", "models", "x"]), VALUES))
def test_no_input_escapes_as_another_error(changes: dict[str, object]) -> None:
    text = yaml.safe_dump({**changed({}), **changes})
    with pytest.raises(InputError):
        parse_job(text, base_dir="/nonexistent")


def test_reading_a_job_needs_no_gpu_stack() -> None:
    script = "import sys, rpeg.job; print(sorted({'torch', 'ray', 'transformers'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(Path(rpeg.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
