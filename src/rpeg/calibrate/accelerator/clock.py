"""Clocks: seconds that a call takes on a device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

Call = Callable[[], object]


class Clock(Protocol):
    """How long calls take."""

    def seconds(self, calls: list[Call]) -> float:
        """Of one call on the device, launches apart. calls: the same work on other memory, so that no cache serves it."""

    def host_seconds(self, call: Call) -> float:
        """Of one call for the host that launches it, without waiting for the device."""


class CpuClock:
    """Processor time of this process, which others on the machine do not count into."""

    def __init__(self, budget_seconds: float = 0.05) -> None:
        self.budget_seconds = budget_seconds

    def seconds(self, calls: list[Call]) -> float:
        """The median of as many calls as the budget allows, at least 3; a first one warms up."""
        calls[0]()
        times: list[float] = []
        while len(times) < 3 or (sum(times) < self.budget_seconds and len(times) < 200):
            call = calls[len(times) % len(calls)]
            start = time.process_time()
            call()
            times.append(time.process_time() - start)
        return max(statistics.median(times), 1e-8)

    def host_seconds(self, call: Call) -> float:
        """On a CPU launching is running: the mean of many calls."""
        call()
        count = 2000
        start = time.process_time()
        for _ in range(count):
            call()
        return (time.process_time() - start) / count


class CudaClock:
    """CUDA events around the replay of a captured graph; around plain launches where a call cannot be captured."""

    def __init__(self, device: torch.device, budget_seconds: float = 0.02) -> None:
        self.device = device
        self.budget_seconds = budget_seconds

    def seconds(self, calls: list[Call]) -> float:
        """Mean seconds of one call over about the budget."""
        with torch.cuda.device(self.device):
            for call in calls:
                call()
            torch.cuda.synchronize()
            replay = self._captured(calls)
            once = self._timed(replay, 1)
            repeats = max(2, min(200, int(self.budget_seconds / max(once, 1e-6))))
            return statistics.median(self._timed(replay, repeats) for _ in range(3)) / len(calls)

    def host_seconds(self, call: Call) -> float:
        """Until the launch returns; the queue is emptied before it can fill."""
        with torch.cuda.device(self.device):
            call()
            torch.cuda.synchronize()
            count = 500
            start = time.perf_counter()
            for _ in range(count):
                call()
            seconds = (time.perf_counter() - start) / count
            torch.cuda.synchronize()
            return seconds

    def _captured(self, calls: list[Call]) -> Call:
        def plain() -> None:
            for call in calls:
                call()

        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                plain()
        except RuntimeError:
            torch.cuda.synchronize()
            return plain
        return graph.replay

    def _timed(self, replay: Call, repeats: int) -> float:
        event: Any = torch.cuda.Event
        start, end = event(enable_timing=True), event(enable_timing=True)
        start.record()
        for _ in range(repeats):
            replay()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / repeats


def clock_of(device: torch.device) -> Clock:
    """The clock of a device."""
    return CudaClock(device) if device.type == "cuda" else CpuClock()
