"""A user's function, a reward or a tool, in a process of its own, which a time limit can really end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rpeg.backends.reward.failure import Failed, Raised, TimedOut
from rpeg.errors import InputError, RunError

START_LIMIT_SECONDS = 120.0  # importing a module may take long, once; it counts on no sample's time


@dataclass
class FunctionProcess:
    """Calls `reference` (python:package.module:function) in a child process, started at the first call.

    options: further keyword arguments of every call, as JSON can write them. kind: what it is called with and gives, a
    key of `worker.KINDS`.
    After a call that timed out or died the child is killed and the next call starts a new one.
    """

    reference: str
    import_from: str
    limit_seconds: float
    options: Mapping[str, object] = field(default_factory=dict)
    kind: str = "reward"
    _child: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _rest: bytes = field(default=b"", repr=False)

    def __call__(self, prompt_text: str, response_text: str, answer: str) -> float:
        """A reward function's score; raises as `call` does."""
        return float(self.call(prompt_text, response_text, answer))

    def call(self, *arguments: str) -> Any:
        """What the function gives. Raises TimedOut, Failed, or InputError when it cannot be imported."""
        self.start()
        assert self._child is not None
        assert self._child.stdin is not None
        request = json.dumps(arguments).encode() + b"\n"
        try:
            self._child.stdin.write(request)
            self._child.stdin.flush()
        except BrokenPipeError:
            self.close()
            raise Failed(f"the {self.kind} process had died") from None
        reply = self._reply(self.limit_seconds)
        if "raised" in reply:
            raise Raised(str(reply["raised"]))
        if "error" in reply:
            raise Failed(str(reply["error"]))
        return reply["result"]

    def start(self) -> None:
        """Start the child and wait until it has imported the function."""
        if self._child is not None:
            return
        path = os.pathsep.join([self.import_from, *(entry for entry in sys.path if entry)])
        told = (json.dumps(self.options), self.kind, str(self.limit_seconds))
        arguments = [self.reference, self.import_from, *told]
        self._child = subprocess.Popen(
            [sys.executable, "-m", "rpeg.backends.reward.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then ends the child
        )
        try:
            reply = self._reply(START_LIMIT_SECONDS)
        except TimedOut:
            raise RunError(
                f"{self.reference}: importing it took longer than {START_LIMIT_SECONDS:.0f} s"
            ) from None
        except Failed as error:
            raise RunError(f"{self.reference}: its process ended while importing: {error}") from None
        if "error" in reply:
            self.close()
            raise InputError(str(reply["error"]))

    def close(self) -> None:
        """Kill the child and what it started, if there is one."""
        child, self._child, self._rest = self._child, None, b""
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _reply(self, limit_seconds: float) -> Mapping[str, Any]:
        """One line from the child. On TimedOut and Failed it is gone."""
        try:
            line = self._line(time.monotonic() + limit_seconds)
            reply = json.loads(line)
        except (TimedOut, Failed):
            self.close()
            raise
        assert isinstance(reply, dict)
        return reply

    def _line(self, deadline: float) -> bytes:
        assert self._child is not None
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    raise TimedOut
                received = os.read(self._child.stdout.fileno(), 1 << 16)
                if not received:
                    raise Failed(f"the {self.kind} process ended with code {self._child.wait()}")
                self._rest += received
        line, _, self._rest = self._rest.partition(b"\n")
        return line
