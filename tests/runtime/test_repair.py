"""What is decided about workers that are lost: pure, without a process."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.errors import InputError, RunError
from rpeg.plan import Item, ItemKind
from rpeg.runtime.failure import Failure, Stalled, WorkerFailed, error_text, is_of_a_peer
from rpeg.runtime.heartbeat import Beat, Heart, beat_file, beats_of, collective, stack
from rpeg.runtime.repair import Repairs
from rpeg.runtime.vigil import Silences, Vigil, is_gone
from rpeg.runtime.workers import call_all, lost_among

DIED = Failure("device1", "train_actor[step 4, part 0, replica 0]", 4, "the process has died")


def beat(lane: str = "device0", count: int = 1, **change: object) -> Beat:
    now = Beat(lane, count, os.getpid(), 0.0, "elsewhere", "waiting", None, 0.0, "", 2**30)
    return replace(now, **change)  # type: ignore[arg-type]


def test_a_run_goes_on_as_often_as_it_may() -> None:
    repairs = Repairs(2)
    for steps in (3, 6):
        repairs = repairs.after(replace(DIED, step=steps + 1), steps)
    with pytest.raises(RunError, match=r"device1: the process has died\n.*restarted 2 times.*--restarts"):
        repairs.after(replace(DIED, step=10), 9)


def test_it_does_not_go_on_where_nothing_comes_of_it() -> None:
    """Neither a newer checkpoint nor a later step since the failure before."""
    repairs = Repairs(9).after(DIED, 3)
    with pytest.raises(RunError, match=r"brought nothing: it followed train_actor\[step 4"):
        repairs.after(DIED, 3)
    assert repairs.after(DIED, 4).done == 2
    assert repairs.after(replace(DIED, step=5), 3).done == 2
    with pytest.raises(RunError, match="brought nothing"):
        repairs.after(replace(DIED, step=None, doing="loading models"), 3)


def test_without_restarts_the_failure_is_all_that_is_said() -> None:
    with pytest.raises(RunError) as caught:
        Repairs(0).after(DIED, 3)
    assert str(caught.value) == DIED.text


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30), st.integers(0, 5))
def test_restarts_are_bounded(failures: list[tuple[int, int]], limit: int) -> None:
    repairs = Repairs(limit)
    for step, steps in failures:
        try:
            repairs = repairs.after(replace(DIED, step=step), steps)
        except RunError:
            break
    assert repairs.done <= limit


def test_who_is_silent() -> None:
    silences = Silences(10.0)
    assert silences.among([beat(count=1)], 0.0) == []
    for now in range(1, 30):
        silent = silences.among([beat(count=1), beat("device1", count=now)], float(now))
        assert [b.lane for b, _ in silent] == (["device0"] if now > 10 else [])


def test_a_reader_that_was_away_blames_nobody() -> None:
    silences = Silences(10.0)
    silences.among([beat()], 0.0)
    assert silences.among([beat()], 3600.0) == []
    assert silences.among([beat()], 3604.0) == []
    assert [b.lane for b, _ in silences.among([beat()], 3608.5)] == []
    assert [b.lane for b, _ in silences.among([beat()], 3612.5)] == ["device0"]


def test_a_heart_beats_and_says_where_its_process_is(tmp_path: Path) -> None:
    heart = Heart(tmp_path, "device0", 0.05)
    try:
        with heart.during("generate[step 3]", 3):
            told = _until(lambda: _with_step(tmp_path, 3))
            (beats_of(tmp_path) / "asked").touch()
            answer = beats_of(tmp_path) / "device0.stack"
            _until(answer.exists)
        assert (told.lane, told.doing, told.pid) == ("device0", "generate[step 3]", os.getpid())
        assert told.memory_bytes > 0
        assert not is_gone(told)
        assert "test_a_heart_beats" in answer.read_text()
        later = _until(
            lambda: (b := Beat.read(beat_file(tmp_path, "device0"))) and b.count > told.count and b
        )
        assert later.count > told.count
    finally:
        heart.close()


def _with_step(trace: Path, step: int) -> Beat | None:
    found = Beat.read(beat_file(trace, "device0"))
    return found if found is not None and found.step == step else None


def _until(found: object) -> object:
    limit = time.monotonic() + 20
    while time.monotonic() < limit:
        if value := found():  # type: ignore[operator]
            return value
        time.sleep(0.01)
    raise AssertionError("it does not come")


def test_a_process_that_ended_is_gone(tmp_path: Path) -> None:
    import socket
    import subprocess
    import sys

    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert is_gone(beat(pid=process.pid, node=socket.gethostname()))
    assert is_gone(beat(born=1.0, node=socket.gethostname()))  # another process has the number
    assert not is_gone(beat(pid=process.pid))  # of another node nothing is known


def test_a_torn_beat_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "device0.json"
    assert Beat.read(path) is None
    for text in ("", "{", "[]", '{"lane": "device0"}'):
        path.write_text(text)
        assert Beat.read(path) is None


def test_the_collective_that_a_thread_is_in() -> None:
    import sys

    assert collective(sys._getframe()) == ""
    code = compile("def all_reduce(f):\n    return f()", "torch/distributed/distributed_c10d.py", "exec")
    scope: dict[str, object] = {}
    exec(code, scope)
    assert scope["all_reduce"](lambda: collective(sys._getframe())) == "all_reduce"  # type: ignore[operator]
    assert stack(None) == "no Python runs in it\n"


def test_the_first_cause_is_named_before_what_peers_say(tmp_path: Path) -> None:
    """A peer's closed connection is reported first; the worker that is gone is what it comes of."""
    import socket

    dead = beat(
        "device1", pid=2**22 + 1, node=socket.gethostname(), doing=DIED.doing, step=4, inside="all_reduce"
    )
    beats_of(tmp_path).mkdir()
    beat_file(tmp_path, "device1").write_text(json.dumps(asdict(dead)))
    why = "RuntimeError: [../third_party/gloo] Connection closed by peer [127.0.0.1]:3012"
    assert is_of_a_peer(why)

    async def work() -> None:
        raise WorkerFailed(Failure("device0", DIED.doing, 4, why, peer=True))

    with pytest.raises(WorkerFailed) as caught:
        asyncio.run(Vigil(tmp_path, ("device0", "device1"), 5.0, {"device1": 3 * 2**30}, nobody).over(work()))
    assert caught.value.failure.lane == "device1"
    for words in ("the process has died", "in all_reduce", "held 1.00 GiB of 3.00 predicted", "step 4"):
        assert words in str(caught.value)


async def nobody() -> list[str]:
    return []


def test_a_death_on_another_node_is_asked_for(tmp_path: Path) -> None:
    beats_of(tmp_path).mkdir()
    told = beat("device1", doing=DIED.doing, step=4)
    beat_file(tmp_path, "device1").write_text(json.dumps(asdict(told)))

    async def work() -> None:
        raise WorkerFailed(Failure("device0", DIED.doing, 4, "Connection closed by peer", peer=True))

    workers = {"device0": Answering(None), "device1": Answering(ActorDiedError()), "device2": Answering(True)}
    lost = partial(lost_among, workers)
    with pytest.raises(WorkerFailed, match="worker device1: the process has died"):
        asyncio.run(Vigil(tmp_path, ("device1",), 5.0, {}, lost).over(work()))  # type: ignore[arg-type]


class ActorDiedError(Exception):
    """As Ray calls it."""


@dataclass
class Driving:
    """A driver that runs one item on two devices."""

    def running(self) -> list[tuple[Item, tuple[str, ...]]]:
        return [(Item(ItemKind.RUN, "train_actor", 4, 0, 0), ("device0", "device1"))]

    def who_waits(self) -> str:
        return "  running: train_actor on device0, device1\n  waiting: generate for train_actor"


def test_in_a_hang_the_one_that_is_in_no_collective_is_named(tmp_path: Path) -> None:
    beats_of(tmp_path).mkdir()
    for lane, inside in (("device0", "all_reduce"), ("device1", "")):
        told = beat(lane, doing=DIED.doing, step=4, inside=inside, seconds=9.0)
        beat_file(tmp_path, lane).write_text(json.dumps(asdict(told)))
    (beats_of(tmp_path) / "device1.stack").write_text("  File loss.py, line 3, in endless\n")

    async def work() -> None:
        raise Stalled(9.0, "who waits")

    vigil = Vigil(tmp_path, ("device0", "device1"), 0.5, {}, nobody)
    vigil.driver = Driving()  # type: ignore[assignment]
    with pytest.raises(WorkerFailed) as caught:
        asyncio.run(vigil.over(work()))
    first, *report = str(caught.value).splitlines()
    assert first.startswith(f"{DIED.doing}: worker device1: nothing has happened for 9 s")
    assert "  waiting: generate for train_actor" in report
    assert f"  device0: {DIED.doing} for 9.0 s, in all_reduce" in report
    assert "  File loss.py, line 3, in endless" in report
    assert "    (it does not answer: no stack)" in report


def test_memory_is_named_as_such() -> None:
    assert error_text(MemoryError()).startswith("out of memory")
    assert error_text(
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 5 bytes")
    ).startswith("out of memory")
    assert error_text(ValueError("other")) == "ValueError: other"


class Answering:
    """A worker that answers, fails or keeps silent."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def call(self, method: str, *arguments: object) -> Awaitable[object]:
        async def answered() -> object:
            if self.answer is None:
                await asyncio.sleep(3600)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return answered()


def test_late_joiners_are_named() -> None:
    workers = {"device0": Answering(1), "device1": Answering(None), "device2": Answering(None)}
    with pytest.raises(
        WorkerFailed, match=r"loading models: worker device1: has not come up within 0.05 s.*device2"
    ):
        asyncio.run(call_all(workers, "prepare", doing="loading models", within_seconds=0.05))  # type: ignore[arg-type]


def test_who_fails_while_others_wait_is_named() -> None:
    workers = {"device0": Answering(None), "device1": Answering(OSError("no such file"))}
    with pytest.raises(WorkerFailed, match="worker device1: OSError: no such file"):
        asyncio.run(call_all(workers, "prepare", doing="loading models"))  # type: ignore[arg-type]
    ours = {"device0": Answering(InputError("another model"))}
    with pytest.raises(InputError, match="another model"):
        asyncio.run(call_all(ours, "prepare"))  # type: ignore[arg-type]
    assert asyncio.run(call_all({"device0": Answering(1)}, "prepare")) == {"device0": 1}  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without room")
def test_a_log_without_room_names_itself() -> None:
    from rpeg.backends.disk import disk_trouble
    from rpeg.trace import JsonLines

    lines = JsonLines(Path("/dev/full"))
    with pytest.raises(OSError) as caught:
        lines.write({"a": 1})
    assert disk_trouble(caught.value).startswith("/dev/full: No space left on device, ")
    lines.close()
