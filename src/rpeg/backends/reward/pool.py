"""Several processes of one reward function, so that slow ones score side by side."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue

from rpeg.backends.reward.process import FunctionProcess


class FunctionPool:
    """Calls the function in whichever process is free; as many threads as there are processes may call at once."""

    def __init__(self, processes: Sequence[FunctionProcess]) -> None:
        self.processes = tuple(processes)
        self._free: SimpleQueue[FunctionProcess] = SimpleQueue()
        for process in self.processes:
            self._free.put(process)

    def __call__(self, prompt_text: str, response_text: str, answer: str) -> float:
        """As `FunctionProcess` does."""
        process = self._free.get()
        try:
            return process(prompt_text, response_text, answer)
        finally:
            self._free.put(process)

    def start(self) -> None:
        """Starts the first and waits until it has imported the function; the others start at their first calls."""
        self.processes[0].start()

    def close(self) -> None:
        """Kills all of them."""
        for process in self.processes:
            process.close()
