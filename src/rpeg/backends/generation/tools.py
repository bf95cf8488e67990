"""`Toolbox`: a user's tool in processes of its own, asked without waiting."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue

from rpeg.backends.reward.failure import Failed, TimedOut
from rpeg.backends.reward.process import FunctionProcess
from rpeg.job.tools import Tools


@dataclass(frozen=True)
class Reply:
    """What a tool gave. text: to go on with; None where nothing was called. failure: why it gave an error instead."""

    text: str | None
    seconds: float
    failure: str = ""
    timed_out: bool = False


class Toolbox:
    """As many calls at once as there are processes; each ends within its limit, whatever the function does.

    A call that fails or takes too long is answered with a line that says so, which the model reads. InputError where the
    function cannot be imported or called.
    """

    def __init__(self, tools: Tools) -> None:
        self._limit_seconds = tools.time_limit_seconds
        self._processes = [
            FunctionProcess(tools.function, tools.import_from, tools.time_limit_seconds, kind="tool")
            for _ in range(tools.processes)
        ]
        self._processes[0].start()
        self._free: SimpleQueue[FunctionProcess] = SimpleQueue()
        for process in self._processes:
            self._free.put(process)
        self._threads = ThreadPoolExecutor(tools.processes, thread_name_prefix="tool")

    def ask(self, prompt: str, response: str) -> Future[Reply]:
        """The reply to what a response says, once it is there."""
        return self._threads.submit(self._ask, prompt, response)

    def close(self) -> None:
        """Ends the processes; calls that run are answered as failed."""
        for process in self._processes:
            process.close()
        self._threads.shutdown(cancel_futures=True)

    def _ask(self, prompt: str, response: str) -> Reply:
        process, start = self._free.get(), time.monotonic()
        try:
            text = process.call(prompt, response)
        except TimedOut:
            failure = f"no answer within {self._limit_seconds:g} s"
            return Reply(_error(failure), time.monotonic() - start, failure, timed_out=True)
        except Failed as failed:
            return Reply(_error(str(failed)), time.monotonic() - start, str(failed))
        finally:
            self._free.put(process)
        return Reply(text, time.monotonic() - start)


def _error(failure: str) -> str:
    return f"[tool error: {failure}]"
