"""What goes between an engine in a process of its own and whoever uses it: frames of JSON with arrays, nothing pickled.

A frame is the length of its header (8 bytes, little-endian), the header as JSON, and its arrays' bytes one after another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rpeg.backends.generation.protocol import Begun, Finish, Request, Response

Array = npt.NDArray[Any]
_DTYPES = {name: np.dtype(name) for name in ("int64", "float64", "bool")}


@dataclass(frozen=True)
class Frame:
    """kind: what it is. values: JSON. arrays: one-dimensional, of int64, float64 or bool."""

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)
    arrays: Sequence[Array] = ()


def write(stream: IO[bytes], frame: Frame) -> None:
    """Raises BrokenPipeError where nobody reads any more."""
    shapes = [(str(array.dtype), len(array)) for array in frame.arrays]
    header = json.dumps([frame.kind, dict(frame.values), shapes]).encode()
    stream.write(len(header).to_bytes(8, "little") + header)
    for array in frame.arrays:
        stream.write(np.ascontiguousarray(array).tobytes())
    stream.flush()


def read(stream: IO[bytes]) -> Frame | None:
    """The next frame; None where the stream has ended."""
    start = stream.read(8)
    if len(start) < 8:
        return None
    kind, values, shapes = json.loads(stream.read(int.from_bytes(start, "little")))
    arrays = []
    for name, length in shapes:
        dtype = _DTYPES[name]
        content = stream.read(length * dtype.itemsize)
        if len(content) < length * dtype.itemsize:
            return None
        arrays.append(np.frombuffer(content, dtype=dtype))
    return Frame(kind, values, arrays)


def of_requests(kind: str, requests: Sequence[Request], **values: Any) -> Frame:
    """A frame that `requests_of` reads."""
    begun = [request.begun for request in requests]
    columns: list[tuple[Sequence[Any], type]] = [
        ([r.id for r in requests], np.int64),
        ([r.group for r in requests], np.int64),
        ([len(r.prompt) for r in requests], np.int64),
        ([token for r in requests for token in r.prompt], np.int64),
        ([len(b) for b in begun], np.int64),
        ([token for b in begun for token in b.tokens], np.int64),
        ([value for b in begun for value in b.logprobs], np.float64),
        ([version for b in begun for version in b.versions], np.int64),
        ([drawn for b in begun for drawn in b.drawn], np.bool_),
    ]
    return Frame(kind, values, [np.asarray(column, dtype=dtype) for column, dtype in columns])


def requests_of(frame: Frame) -> list[Request]:
    """The requests of a frame, in order."""
    ids, groups, prompt_lengths, prompts, lengths, *columns = frame.arrays
    own = _pieces(prompts, prompt_lengths)
    begun = zip(*(_pieces(column, lengths) for column in columns), strict=True)
    return [
        Request(int(i), int(group), tuple(prompt), Begun(*map(tuple, parts)))
        for i, group, prompt, parts in zip(ids, groups, own, begun, strict=True)
    ]


def of_response(response: Response) -> Frame:
    """A frame that `response_of` reads."""
    values = {"id": response.id, "group": response.group, "finish": response.finish}
    prompt = np.asarray(response.prompt, dtype=np.int64)
    columns = response.tokens, response.logprobs, response.versions, response.drawn
    return Frame("response", values, (prompt, *columns))


def response_of(frame: Frame) -> Response:
    """The response of a frame."""
    prompt, tokens, logprobs, versions, drawn = frame.arrays
    finish: Finish = frame.values["finish"]
    return Response(
        frame.values["id"],
        frame.values["group"],
        tuple(prompt.tolist()),
        tokens,
        logprobs,
        versions,
        drawn,
        finish,
    )


def _pieces(flat: Array, lengths: Array) -> list[list[Any]]:
    return [piece.tolist() for piece in np.split(flat, np.cumsum(lengths)[:-1])] if len(lengths) else []
