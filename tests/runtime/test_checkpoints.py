"""Which versions a checkpoint holds, when it counts, and what a crash at any point of its making leaves."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rpeg.backends.training.checkpoint import File, Snapshot, read_weights
from rpeg.errors import RunError
from rpeg.ir import Freshness
from rpeg.plan import Copy
from rpeg.runtime import run_directory
from rpeg.runtime.checkpoints import Checkpoints, reach
from rpeg.runtime.run_directory import RunDirectory
from rpeg.runtime.saving import Saver


def copy_of(delay: int, freshness: Freshness = Freshness.EXACT) -> Copy:
    return Copy("train->generate:weights:actor", "actor", "train", ("generate",), delay, freshness)


def snapshot(value: float = 0.0) -> Snapshot:
    places = {"w": "[[3], [0]]"}
    return Snapshot({"weights.safetensors": File({"w": torch.full((3,), value)}, places)}, {"format": 2})


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 12), st.integers(0, 11))
def test_every_version_that_a_checkpoint_needs_is_written_into_it(
    delay: int, every: int, last: int, first: int
) -> None:
    """By the stretch that makes it, or taken over from the checkpoint that the stretch began with."""
    first = min(first, last - 1)
    copies = [copy_of(delay)]

    class Named(RunDirectory):
        def begin_checkpoint(self, steps: int) -> Path:
            return Path(str(steps))

    checkpoints = Checkpoints(Named(Path()), every, 1, 0)
    written: dict[int, set[int]] = {}
    for version in range(first + 1, last + 1):
        save = checkpoints.save(version, last, copies)
        for steps in save.weights if save is not None else ():
            written.setdefault(int(str(steps)), set()).add(version)
        assert (save is not None and save.state is not None) == checkpoints.wanted(version, last)
    for steps in (s for s in range(first + 1, last + 1) if checkpoints.wanted(s, last)):
        needed = set(range(copies[0].version_before(steps), steps))
        assert {v for v in needed if v > first} == written.get(steps, set())


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_latest_edges_need_no_older_versions(delay: int) -> None:
    assert reach([copy_of(delay, Freshness.LATEST)]) == 1
    assert copy_of(delay, Freshness.LATEST).version_before(7) == 7
    assert copy_of(delay).version_before(7) == 8 - delay
    assert copy_of(delay).version_before(0) == 0


def test_a_checkpoint_counts_when_all_that_was_announced_is_written(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    checkpoints, saver = Checkpoints(run, 1, 2, 0), Saver()

    async def committed() -> None:
        save = checkpoints.save(1, 9, [])
        assert save is not None
        assert save.state is not None
        mark = save.state / "written-actor-device0"
        checkpoints.expect((mark,))
        waiting = asyncio.create_task(checkpoints.commit(1, 0, []))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        assert run.checkpoints() == []
        saver.save(snapshot(1.0), save.state / "actor", mark)
        assert (await waiting).steps == 1

    asyncio.run(committed())
    (checkpoint,) = run.checkpoints()
    assert sorted(path.name for path in checkpoint.path.iterdir()) == ["actor", "state.json"]
    assert torch.equal(read_weights(checkpoint.path / "actor")["w"], torch.ones(3))
    saver.close()


def test_training_goes_on_while_the_state_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is on its way until it is waited for; the next one waits for it."""
    gate, saver = threading.Event(), Saver()
    write = Snapshot.write

    def slowly(self: Snapshot, directory: Path) -> None:
        assert gate.wait(20)
        write(self, directory)

    monkeypatch.setattr(Snapshot, "write", slowly)
    saver.save(snapshot(), tmp_path / "actor", tmp_path / "mark")
    saver.check()
    assert not (tmp_path / "mark").exists()
    gate.set()
    saver.begin()
    assert (tmp_path / "mark").exists()
    saver.close()


def test_what_cannot_be_written_is_told_by_the_next_call(tmp_path: Path) -> None:
    saver = Saver()
    (tmp_path / "file").touch()
    saver.save(snapshot(), tmp_path / "file" / "actor", tmp_path / "mark")
    with pytest.raises(RunError, match=r"cannot write .*file/actor.*older checkpoints are untouched"):
        saver.begin()
    saver.begin()
    assert not (tmp_path / "mark").exists()
    saver.close()


class Crash(BaseException):
    """The process is gone."""


def make_checkpoint(run: RunDirectory, steps: int) -> None:
    snapshot(float(steps)).write(run.begin_checkpoint(steps) / "actor")
    run.commit_checkpoint(steps, seed=0, keep=1)


def test_a_crash_at_any_point_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each call that changes the disk the process dies; then the run is gone on with, and the next one made."""
    crashes = 0
    while True:
        run = RunDirectory(tmp_path / str(crashes))
        run.path.mkdir()
        make_checkpoint(run, 2)
        left = crashes

        def dying(call: object) -> object:
            def counted(*arguments: object, **options: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Crash
                return call(*arguments, **options)  # type: ignore[operator]

            return counted

        with monkeypatch.context() as patch:
            patch.setattr(run_directory, "write_durably", dying(run_directory.write_durably))
            patch.setattr(run_directory, "sync", dying(run_directory.sync))
            patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
            patch.setattr(os, "unlink", dying(os.unlink))  # of each file, also in the midst of a tree
            for name in ("rename", "mkdir"):
                patch.setattr(Path, name, dying(getattr(Path, name)))
            try:
                make_checkpoint(run, 4)
                died = False
            except Crash:
                died = True
        found = run.checkpoints()
        assert found, crashes
        for checkpoint in found:
            expected = torch.full((3,), float(checkpoint.steps))
            assert torch.equal(read_weights(checkpoint.path / "actor")["w"], expected)
        run.drop_unfinished()
        make_checkpoint(run, 6)
        assert [checkpoint.steps for checkpoint in run.checkpoints()] == [6]
        if not died:
            break
        crashes += 1
    assert crashes > 4
