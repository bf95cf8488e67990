"""The process of an `EngineApart`: `python -m rpeg.backends.generation.apart_process SETUP`.

Frames come over the standard input and go over the original standard output; whatever an engine prints goes to standard
error. It ends when its input does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any

import torch
from safetensors import safe_open
from torch import Tensor

from rpeg.backends.generation import backend
from rpeg.backends.generation.protocol import GenerationEngine, Request, Sampling, Setup
from rpeg.backends.generation.wire import Frame, of_requests, of_response, read, requests_of, write
from rpeg.errors import InputError


class Served:
    """An engine, and the stream that it is asked and answers over."""

    def __init__(self, told: dict[str, Any], source: IO[bytes], target: IO[bytes]) -> None:
        self._source, self._target = source, target
        self._told = told
        self._engine: GenerationEngine | None = None

    @property
    def engine(self) -> GenerationEngine:
        assert self._engine is not None
        return self._engine

    def run(self) -> None:
        """Until the input ends."""
        self._try(self._begin)
        while (frame := read(self._source)) is not None:
            self._try(getattr(self, f"_on_{frame.kind}"), frame)

    def _try(self, work: Any, *arguments: Frame) -> None:
        try:
            work(*arguments)
        except EOFError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is told
            text = str(error).strip() or type(error).__name__
            self._say("raised", input=isinstance(error, InputError), text=text)

    def _begin(self) -> None:
        told = self._told
        setup = Setup(
            None,
            told["directory"],
            told["slots"],
            told["max_length"],
            torch.device(told["device"]),
            0,
            told["pad_token_id"],
            told["truncates"],
            getattr(torch, told["dtype"]),
        )
        if setup.device.type == "cpu":
            torch.set_num_threads(1)
        self._engine = backend(told["backend"]).made(setup)
        self._say("ready")

    def _on_load(self, frame: Frame) -> None:
        self.engine.load_weights(self._weights(), frame.values["version"])
        self._say("done")

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        while (piece := self._next()).kind == "piece":
            with safe_open(piece.values["file"], framework="pt", device=self._told["device"]) as file:
                for name in file.keys():  # noqa: SIM118 - it is no mapping
                    yield name, file.get_tensor(name)
            self._say("taken")

    def _on_score(self, frame: Frame) -> None:
        write(self._target, Frame("scores", self._now(), (self.engine.score(frame.arrays[0]),)))

    def _on_drop_caches(self, _: Frame) -> None:
        self.engine.drop_caches()
        self._say("done")

    def _on_sleep(self, _: Frame) -> None:
        self.engine.sleep()
        self._say("done")

    def _on_generate(self, frame: Frame) -> None:
        values = dict(frame.values["sampling"])
        sampling = Sampling(**{**values, "stop_token_ids": tuple(values["stop_token_ids"])})
        responses = self.engine.generate(
            requests_of(frame),
            sampling,
            seed=frame.values["seed"],
            version=frame.values["version"],
            more=self._more,
        )
        self._say("begins")
        for response in responses:
            write(self._target, of_response(response))
        write(self._target, of_requests("ended", self.engine.unfinished, **self._now()))

    def _more(self) -> Sequence[Request]:
        self._say("asks")
        answer = self._next()
        if answer.values["stop"]:
            self.engine.stop()
        return requests_of(answer)

    def _next(self) -> Frame:
        frame = read(self._source)
        if frame is None:
            raise EOFError
        return frame

    def _say(self, kind: str, **values: Any) -> None:
        write(self._target, Frame(kind, {**self._now(), **values}))

    def _now(self) -> dict[str, Any]:
        return {"cache_bytes": self._engine.cache_bytes if self._engine is not None else 0}


def main() -> None:
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        Served(json.loads(sys.argv[1]), sys.stdin.buffer, target).run()
    except (EOFError, BrokenPipeError):
        os._exit(0)  # whoever used it has ended; an engine may have threads that would not


if __name__ == "__main__":
    main()
