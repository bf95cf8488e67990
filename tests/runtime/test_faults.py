"""Real workers that are killed and stopped, from outside as a machine would; and their driver.

Few Ray starts: one run is struck several times, and goes on each time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import yaml

from rpeg.errors import RunError
from rpeg.job import Job, dump_job
from rpeg.plan import write_plan
from rpeg.runtime import Options, RunDirectory, StepRecord, prepare_directory, train
from rpeg.runtime.heartbeat import Beat, beat_file
from rpeg.runtime.vigil import is_gone
from rpeg.trace import Entry, What, read_traces
from rpeg.verify import prove_run
from runtime.runs import Ran, Silent, make_job, plan_for, run, tiny_model

pytestmark = pytest.mark.slow
STEPS = 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def job_in(model: Path, output: Path, **changes: object) -> Job:
    changes = {"checkpoint": {"every": 1}, "steps": STEPS} | changes
    return make_job(model, output, algorithm="grpo", **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def undisturbed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    job = job_in(model, tmp_path_factory.mktemp("undisturbed") / "run")
    return run(job, plan_for(job, rest=(0,)), in_process=True)


def last_beat(run: Path, lane: str) -> Beat:
    stretches = sorted(run.glob("trace-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    beat = Beat.read(beat_file(stretches[-1], lane))
    assert beat is not None
    return beat


def assert_gone(beats: list[Beat]) -> None:
    """No process of a run is left a minute after it has ended, however it has."""
    limit = time.monotonic() + 60
    while left := [beat for beat in beats if not is_gone(beat)]:
        assert time.monotonic() < limit, left
        time.sleep(0.1)


@dataclass
class Striking(Silent):
    """Does to a lane's process what is due after a step, once."""

    run: Path = Path()
    due: dict[int, tuple[str, str]] = field(default_factory=dict)

    def on_step(self, record: StepRecord) -> None:
        super().on_step(record)
        lane, how = self.due.pop(record.step, ("", ""))
        if lane:
            os.kill(last_beat(self.run, lane).pid, getattr(signal, how))


def is_equal(one: Ran, path: Path) -> bool:
    from rpeg.backends.training.checkpoint import read_weights

    last = RunDirectory(path).checkpoints()[-1]
    found = read_weights(last.path / "actor")
    return last.steps == STEPS and all(torch.equal(t, found[n]) for n, t in one.weights["actor"].items())


def test_a_run_goes_on_whatever_befalls_its_workers(model: Path, undisturbed: Ran, tmp_path: Path) -> None:
    """Killed, stopped, and the host that rewards killed: each is named, and the end is the same."""
    job = job_in(model, tmp_path / "run")
    plan = plan_for(job, rest=(0,))
    due = {
        0: ("device0", "SIGKILL"),
        1: ("device0", "SIGSTOP"),
        4: ("host0.0", "SIGKILL"),
    }
    view = Striking([], tmp_path / "run", due)
    options = Options(export=False, stall_seconds=120, heartbeat_seconds=5, restarts=9)
    directory, _, start = prepare_directory(job, plan, options)
    outcome = train(job, plan, directory, start, options, view)
    assert outcome.finished
    told = [line for line in view.told if "the run goes on" in line]
    for text, words in zip(
        told,
        (
            ("device0", "the process has died", "GiB"),
            ("device0", "silent for", "stopped by a signal"),
            ("host0.0", "the process has died"),
        ),
        strict=True,
    ):
        assert all(word in text for word in words), text
    traces = read_traces(tmp_path / "run")
    assert len(traces) == 4
    assert prove_run(traces).findings == ()
    assert is_equal(undisturbed, tmp_path / "run")
    beats = [beat for file in (tmp_path / "run").glob("trace-*/beats/*.json") if (beat := Beat.read(file))]
    assert len(beats) == 8
    assert_gone(beats)
    recorded = [record["step"] for record in directory.steps_recorded()]
    assert recorded == list(range(STEPS))


def test_the_worker_that_stands_still_is_named_with_where_the_others_wait(
    model: Path, tmp_path: Path
) -> None:
    """Two devices train together and one is stopped: the other is found in the collective in which it waits."""
    job = job_in(model, tmp_path / "run", steps=200)
    plan = plan_for(job, zero=3)

    class Stopping(Silent):
        def on_entry(self, entry: Entry) -> None:
            if entry.what is What.LAUNCH and (entry.item.name, entry.item.step) == ("train_actor", 1):
                os.kill(last_beat(tmp_path / "run", "device1").pid, signal.SIGSTOP)

    view = Stopping([])
    options = Options(export=False, stall_seconds=120, heartbeat_seconds=5, restarts=0)
    directory, _, start = prepare_directory(job, plan, options)
    with pytest.raises(RunError) as caught:
        train(job, plan, directory, start, options, view)
    told = str(caught.value)
    assert "train_actor[step 1, part 0, replica 0]: worker device1: silent for" in told
    assert "running: train_actor[step 1, part 0, replica 0] on device0, device1" in told
    assert "stopped by a signal" in told.splitlines()[0]
    assert "it does not answer: no stack" in told
    assert "device0" in told
    assert "distributed_c10d.py" in told  # of device0, which waits in a collective
    assert "rpeg train --resume" in told
    beats = [last_beat(tmp_path / "run", lane) for lane in ("device0", "device1", "host0.0")]
    assert_gone(beats)


def test_when_the_driver_is_killed_nothing_is_left_and_the_run_resumes(
    model: Path, undisturbed: Ran, tmp_path: Path
) -> None:
    job = job_in(model, tmp_path / "run")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(yaml.safe_load(dump_job(job))))
    write_plan(plan_for(job, rest=(0,)), tmp_path / "plan.json")
    command = [sys.executable, "-m", "rpeg.cli.main", "train", str(tmp_path / "job.yaml"), "--plan"]
    with (tmp_path / "log").open("wb") as log:
        driver = subprocess.Popen([*command, str(tmp_path / "plan.json")], stdout=log, stderr=log)
    directory = RunDirectory(tmp_path / "run")
    try:
        limit = time.monotonic() + 150
        while not directory.checkpoints():
            assert driver.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < limit
            time.sleep(0.02)
        beats = [last_beat(directory.path, lane) for lane in ("device0", "host0.0")]
    finally:
        driver.kill()
        driver.wait()
    assert_gone(beats)
    assert directory.checkpoints()[-1].steps < STEPS
    resumed = run(job, None, resume=True, in_process=True)
    assert prove_run(resumed.traces).findings == ()
    assert is_equal(undisturbed, directory.path)
