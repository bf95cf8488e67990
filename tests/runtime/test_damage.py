"""What is damaged on disk is noticed before it is trained on, exported or trusted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rpeg.errors import InputError, RpegError
from rpeg.job import Job
from rpeg.plan import Plan
from rpeg.runtime import Options, RunDirectory, prepare_directory
from rpeg.runtime.exporting import export_model
from runtime.runs import Ran, make_job, plan_for, run, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def job_in(model: Path, directory: Path, steps: int = 2) -> Job:
    return make_job(
        model, directory, algorithm="grpo", dtype="float32", steps=steps, checkpoint={"every": 1, "keep": 2}
    )


def plan_of(job: Job) -> Plan:
    return plan_for(job, rest=(0,))


@pytest.fixture(scope="module")
def kept(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two steps with a checkpoint after each."""
    job = job_in(model, tmp_path_factory.mktemp("kept") / "run")
    return run(job, plan_of(job), in_process=True)


@pytest.fixture
def copied(kept: Ran, tmp_path: Path) -> RunDirectory:
    """Beside the run, so that paths of its job are the same."""
    original = kept.outcome.directory
    return RunDirectory(Path(shutil.copytree(original, original.with_name(tmp_path.name))))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("stem", ["weights", "optimizer"])
def test_a_flipped_bit_of_a_state_is_not_trained_on(stem: str, model: Path, copied: RunDirectory) -> None:
    flip(copied.path / "checkpoint-000002" / "actor" / f"{stem}.safetensors")
    job = job_in(model, copied.path, steps=3)
    with pytest.raises(RpegError, match=r"safetensors is damaged: .* has not the bytes that were written"):
        run(job, plan_of(job), in_process=True, resume=True)


def test_a_flipped_bit_of_weights_is_not_exported(copied: RunDirectory, tmp_path: Path) -> None:
    flip(copied.path / "checkpoint-000002" / "actor" / "weights.safetensors")
    with pytest.raises(InputError, match="has not the bytes that were written"):
        export_model(copied, None, None, tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


def _unlink_weights(checkpoint: Path) -> None:
    (checkpoint / "actor" / "weights.safetensors").unlink()


def _cut(checkpoint: Path) -> None:
    file = checkpoint / "actor" / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-8])


def _other_counts(checkpoint: Path) -> None:
    file = checkpoint / "actor" / "trainer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "updates": 400}))


def _other_step(checkpoint: Path) -> None:
    file = checkpoint / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "steps": 1}))


@pytest.mark.parametrize("damage", [_unlink_weights, _cut, _other_counts, _other_step])
def test_a_checkpoint_that_is_not_whole_is_passed_over_and_named(
    damage: Callable[[Path], None], copied: RunDirectory
) -> None:
    damage(copied.path / "checkpoint-000002")
    assert [c.steps for c in copied.checkpoints()] == [1]
    assert [path.name for path in copied.damaged()] == ["checkpoint-000002"]


def test_a_run_is_not_begun_again_where_all_checkpoints_are_damaged(
    model: Path, copied: RunDirectory
) -> None:
    for name in ("checkpoint-000001", "checkpoint-000002"):
        _cut(copied.path / name)
    with pytest.raises(InputError, match="checkpoint-000002 is damaged, and there is no whole checkpoint"):
        prepare_directory(job_in(model, copied.path, steps=3), None, Options(resume=True))


@pytest.mark.parametrize("content", ["", "[1]", "train: ["])
@pytest.mark.parametrize("name", ["job.yaml", "data.json"])
def test_a_damaged_file_of_a_run_is_named(name: str, content: str, model: Path, copied: RunDirectory) -> None:
    (copied.path / name).write_text(content)
    job = job_in(model, copied.path, steps=3)
    with pytest.raises(InputError, match=f"{name} is damaged"):
        run(job, plan_of(job), in_process=True, resume=True)


def test_a_line_of_no_step_is_named(copied: RunDirectory) -> None:
    copied.metrics.write_text('{"step": "x"}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl is damaged"):
        copied.drop_metrics_from(1)
