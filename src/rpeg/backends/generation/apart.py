"""`EngineApart`: an engine in a process of its own.

Some engines make process groups among all processes that they find themselves with, and so cannot share one with a worker
that belongs to the run's own group. Such an engine lives beneath its worker, which it ends with.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self

import numpy as np
from safetensors.torch import save_file
from torch import Tensor

from rpeg.backends.adapters import whole_parameters
from rpeg.backends.generation.protocol import (
    Floats,
    More,
    Request,
    Response,
    Sampling,
    Setup,
    nothing_more,
)
from rpeg.backends.generation.wire import Frame, of_requests, read, requests_of, response_of, write
from rpeg.backends.samples import Ints
from rpeg.errors import InputError, RunError

PIECE_BYTES = 256 * 2**20
"""Weights go over in files of about so many bytes in shared memory, one at a time."""
SHARED_MEMORY = Path("/dev/shm")


class EngineApart:
    """The engine `backend` of a setup, without the setup's module: weights go to it by `load_weights` alone."""

    def __init__(self, backend: str, setup: Setup) -> None:
        self._backend, self._bytes, self._stopping = backend, 0, False
        self._unfinished: tuple[Request, ...] = ()
        self._generates = False
        told = {
            "backend": backend,
            "directory": setup.directory,
            "slots": setup.slots,
            "max_length": setup.max_length,
            "device": str(setup.device),
            "dtype": str(setup.dtype).removeprefix("torch."),
            "pad_token_id": setup.pad_token_id,
            "truncates": setup.truncates,
        }
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "rpeg.backends.generation.apart_process", json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C reaches the run alone, which then ends the child
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._target, self._source = self._child.stdin, self._child.stdout
        self._answer("ready")

    @classmethod
    def made(cls, backend: str, setup: Setup) -> Self:
        """With the weights of the setup's module. InputError where the engine cannot serve such a model."""
        assert setup.module is not None
        engine = cls(backend, setup)
        engine.load_weights(whole_parameters(setup.module), setup.version)
        return engine

    @property
    def cache_bytes(self) -> int:
        """Memory that KV buffers held when the engine last answered."""
        return self._bytes

    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """As `GenerationEngine.load_weights`; piece by piece through files in shared memory."""
        self._demand_idle()
        self._send(Frame("load", {"version": version}))
        where = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="rpeg-weights-", dir=where) as directory:
            for number, piece in enumerate(_pieces(weights)):
                file = Path(directory) / f"{number}.safetensors"
                save_file(piece, file)
                self._send(Frame("piece", {"file": str(file)}))
                self._answer("taken")
                file.unlink()
            self._send(Frame("all"))
            self._answer("done")

    def score(self, tokens: Ints) -> Floats:
        """As `GenerationEngine.score`."""
        self._demand_idle()
        self._send(Frame("score", arrays=(np.asarray(tokens, dtype=np.int64),)))
        scores: Floats = self._answer("scores").arrays[0]
        return scores

    def drop_caches(self) -> None:
        """As `GenerationEngine.drop_caches`."""
        self._ask("drop_caches")

    def sleep(self) -> None:
        """As `GenerationEngine.sleep`."""
        self._ask("sleep")

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        seed: int,
        version: int,
        more: More = nothing_more,
    ) -> Iterator[Response]:
        """As `GenerationEngine.generate`."""
        self._demand_idle()
        self._stopping = False
        values = {"sampling": asdict(sampling), "seed": seed, "version": version}
        self._send(of_requests("generate", requests, **values))
        self._answer("begins")
        self._generates = True
        return self._responses(more)

    def stop(self) -> None:
        """As `GenerationEngine.stop`."""
        self._stopping = True

    @property
    def unfinished(self) -> tuple[Request, ...]:
        """As `GenerationEngine.unfinished`."""
        return self._unfinished

    def close(self) -> None:
        """Ends the process."""
        for pipe in (self._target, self._source):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._child.wait()

    def _responses(self, more: More) -> Iterator[Response]:
        try:
            while (frame := self._answer("asks", "response", "ended")).kind != "ended":
                if frame.kind == "response":
                    yield response_of(frame)
                else:
                    self._send(self._further(more))
            self._unfinished = tuple(requests_of(frame))
            self._generates = False
        finally:
            if self._generates:  # nobody wants the rest
                self._stopping = True
                for _ in self._responses(nothing_more):
                    pass

    def _further(self, more: More) -> Frame:
        further: Sequence[Request] = ()
        try:
            further = () if self._stopping else more()
        except BaseException:
            self._send(of_requests("more", (), stop=True))
            raise
        return of_requests("more", further, stop=self._stopping)

    def _ask(self, what: str) -> None:
        self._demand_idle()
        self._send(Frame(what))
        self._answer("done")

    def _send(self, frame: Frame) -> None:
        with contextlib.suppress(BrokenPipeError):  # what it died of is said by whoever waits for its answer
            write(self._target, frame)

    def _answer(self, *kinds: str) -> Frame:
        """The next frame, of one of these kinds. Raises what the engine raised, or RunError where it has died."""
        frame = read(self._source)
        if frame is None:
            raise RunError(
                f"the process of the engine {self._backend} has ended with code {self._child.wait()}"
            )
        self._bytes = frame.values.get("cache_bytes", self._bytes)
        if frame.kind == "raised":
            self._generates = False
            kind = InputError if frame.values["input"] else RunError
            raise kind(frame.values["text"])
        if frame.kind not in kinds:
            raise RunError(
                f"the engine {self._backend} answers '{frame.kind}' instead of {' or '.join(kinds)}"
            )
        return frame

    def _demand_idle(self) -> None:
        if self._generates:
            raise RunError("a generation is going on; exhaust or close its iterator first")


def _pieces(weights: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    piece: dict[str, Tensor] = {}
    size = 0
    for name, tensor in weights:
        piece[name] = tensor.detach().cpu().contiguous().clone()  # tied ones under each of their names
        size += piece[name].nbytes
        if size >= PIECE_BYTES:
            yield piece
            piece, size = {}, 0
    if piece:
        yield piece
