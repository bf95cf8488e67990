"""Watching over workers: who is silent, who is dead, who hangs where."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import psutil

from rpeg.plan import Item
from rpeg.runtime.driver import Driver
from rpeg.runtime.failure import GONE, Failure, Stalled, WorkerFailed
from rpeg.runtime.heartbeat import BEATS_IN_A_HEARTBEAT, Beat, beat_file, beats_of

T = TypeVar("T")


class Silences:
    """Who has not been heard of for too long, by the reader's own clock."""

    def __init__(self, heartbeat_seconds: float) -> None:
        self.heartbeat_seconds = heartbeat_seconds
        self._heard: dict[str, tuple[int, float]] = {}
        self._looked = float("-inf")

    def among(self, beats: Iterable[Beat], now: float) -> list[tuple[Beat, float]]:
        """(last beat, seconds of silence) of those that have been silent for more than a heartbeat.

        Where the reader itself was away for so long, everyone begins anew.
        """
        away, self._looked = now - self._looked > self.heartbeat_seconds / 2, now
        for beat in beats:
            count, _ = self._heard.get(beat.lane, (-1, now))
            if away or beat.count != count:
                self._heard[beat.lane] = (beat.count, now)
        ages = [(beat, now - self._heard[beat.lane][1]) for beat in beats]
        return [(beat, age) for beat, age in ages if age > self.heartbeat_seconds]


class Vigil:
    """Over the workers of one stretch, by the beats that they write into its directory.

    lost: the lanes of workers that are known to be dead on whatever node.
    """

    def __init__(
        self,
        trace: Path,
        lanes: Iterable[str],
        heartbeat_seconds: float,
        predicted_bytes: Mapping[str, float],
        lost: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        self.trace, self.lanes, self.heartbeat_seconds = trace, tuple(lanes), heartbeat_seconds
        self.predicted_bytes, self._lost = predicted_bytes, lost
        self.driver: Driver | None = None

    async def over(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives. WorkerFailed as soon as a worker is dead or has been silent for a heartbeat.

        Where the work fails of what comes of a death, it is the death that is told, and where everyone was then.
        """
        running = asyncio.create_task(work)
        watching = asyncio.create_task(self._watch())
        try:
            await asyncio.wait((running, watching), return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                watching.result()
            return running.result()
        except Stalled as stalled:
            failure = self._laggard(stalled)
            raise WorkerFailed(failure, await self._report()) from None
        except WorkerFailed as error:
            failure = await self._first_cause(error.failure)
            raise WorkerFailed(failure, await self._report() if failure.hangs else error.report) from None
        finally:
            ended = running.done() and not running.cancelled() and running.exception() is None
            for task in (running, watching):
                task.cancel()
            await asyncio.gather(running, watching, return_exceptions=True)
            if not ended:
                self._end()

    def _laggard(self, stalled: Stalled) -> Failure:
        """Of those that run items the one that is in no collective: it is what the others wait for in theirs."""
        beats = self.beats()
        held = [beats[lane] for _, lanes in self._running() for lane in lanes if lane in beats]
        late = min(held, key=lambda beat: bool(beat.inside), default=None)
        why = f"nothing has happened for {stalled.seconds:g} s"
        if late is None:
            return Failure("driver", "scheduling", None, why, hangs=True)
        return replace(self._failure(late, why), hangs=True)

    async def _first_cause(self, failure: Failure) -> Failure:
        """The death of a worker before what its peers say of it."""
        beats = self.beats()
        dead = {lane: beat for lane, beat in beats.items() if is_gone(beat)}
        if failure.peer and not dead:
            dead = {lane: beats[lane] for lane in await self._lost() if lane in beats}
        if failure.lane in dead:
            return replace(failure, why=self._failure(dead[failure.lane], GONE).why)
        return self._failure(next(iter(dead.values())), GONE) if dead and failure.peer else failure

    async def _watch(self) -> NoReturn:
        silences = Silences(self.heartbeat_seconds)
        while True:
            beats = self.beats().values()
            for beat in beats:
                if is_gone(beat):
                    raise WorkerFailed(self._failure(beat, GONE))
            for beat, age in silences.among(list(beats), time.monotonic()):
                why = f"silent for {age:.1f} s{_condition(beat)}"
                raise WorkerFailed(replace(self._failure(beat, why), hangs=True))
            await asyncio.sleep(self.heartbeat_seconds / BEATS_IN_A_HEARTBEAT)

    def beats(self) -> Mapping[str, Beat]:
        """The last beat of each worker that has begun to."""
        found = {lane: Beat.read(beat_file(self.trace, lane)) for lane in self.lanes}
        return {lane: beat for lane, beat in found.items() if beat is not None}

    async def _report(self) -> str:
        """Who waits for whom; what each worker does, and the Python stack of each that answers within a few beats."""
        beats = self.beats()
        directory = beats_of(self.trace)
        (directory / "asked").touch()
        patience = time.monotonic() + 2 * self.heartbeat_seconds / BEATS_IN_A_HEARTBEAT
        while time.monotonic() < patience and not all(self._stack(lane) for lane in beats):
            await asyncio.sleep(0.05)
        waits = [self.driver.who_waits()] if self.driver is not None else []
        return "\n".join(
            waits
            + [
                f"  {lane}: {beat.text}{_condition(beat)}\n{self._stack(lane) or _NO_STACK}"
                for lane, beat in beats.items()
            ]
        )

    def _stack(self, lane: str) -> str:
        path = beats_of(self.trace) / f"{lane}.stack"
        return path.read_text() if path.exists() else ""

    def _failure(self, beat: Beat, why: str) -> Failure:
        """Of what a worker last told, and the item that it was to run then."""
        predicted = self.predicted_bytes.get(beat.lane)
        of = f" of {predicted / 2**30:.2f} predicted" if predicted is not None else ""
        held = f"it held {beat.memory_bytes / 2**30:.2f} GiB{of}"
        item = next((i for i, lanes in self._running() if beat.lane in lanes), None)
        doing, step = (str(item), item.step) if item is not None else (beat.doing, beat.step)
        return Failure(beat.lane, doing, step, f"{why}; last heard of: {beat.text}; {held}")

    def _running(self) -> list[tuple[Item, Sequence[str]]]:
        return self.driver.running() if self.driver is not None else []

    def _end(self) -> None:
        """Kills what is left of the workers on this node: a stopped process ends by nothing else."""
        for beat in self.beats().values():
            if beat.node == socket.gethostname() and not is_gone(beat):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(beat.pid, signal.SIGKILL)


_NO_STACK = "    (it does not answer: no stack)\n"


def is_gone(beat: Beat) -> bool:
    """Whether the process that beat is known to have ended: of another node nothing is known."""
    if beat.node != socket.gethostname():
        return False
    try:
        process = psutil.Process(beat.pid)
        return bool(abs(process.create_time() - beat.born) > 5 or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _condition(beat: Beat) -> str:
    """What the system says of a process of this node that does not run."""
    if beat.node != socket.gethostname():
        return ""
    try:
        stopped = psutil.Process(beat.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.NoSuchProcess:
        return ", dead"
    return ", stopped by a signal" if stopped else ""
