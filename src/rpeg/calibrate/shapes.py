"""`Shapes`: at which points the ops are timed, so that a job's shapes lie inside and no single call is long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rpeg.architecture import Architecture
from rpeg.cost.passes import work

# One call at the largest point takes about so long at the rate of a modest core; larger shapes are extrapolated.
_CALL_FLOPS = 2e10
_CALL_BYTES = 3e8


@dataclass(frozen=True)
class Shapes:
    """The largest shapes of a job: samples at once (slots or micro-batch) and tokens of a prompt and its response."""

    rows: int = 64
    length: int = 128

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, for a worker process."""
        return {"rows": self.rows, "length": self.length}


@dataclass(frozen=True)
class Points:
    """The points of each axis that an op is timed at."""

    decode: tuple[tuple[int, ...], tuple[int, ...]]
    prefill: tuple[tuple[int, ...], tuple[int, ...]]
    forward: tuple[tuple[int, ...], tuple[int, ...]]
    forward_backward: tuple[tuple[int, ...], tuple[int, ...]]
    head: tuple[int, ...]
    leave: tuple[int, ...]
    sizes: tuple[int, ...]
    parameters: tuple[int, ...]
    samples: tuple[int, ...] = (4, 64, 512)


def points(architecture: Architecture, shapes: Shapes, dtype: str) -> Points:
    """Points for a job of these shapes on this architecture."""
    length = min(shapes.length, architecture.context - 8)
    rows = ladder(1, shapes.rows, 4)
    lengths = ladder(min(8, length), length, 2.5)
    per_token = work.layer_flops_per_token(architecture)
    whole = per_token + work.head_flops_per_token(architecture)
    weight_bytes = architecture.parameters() * work.BYTES_OF[dtype]
    return Points(
        decode=(_within(rows, _CALL_FLOPS / whole), lengths),
        prefill=_fit(ladder(1, shapes.rows, 4), lengths, _CALL_FLOPS / per_token),
        forward=_fit(rows, lengths, _CALL_FLOPS / whole),
        forward_backward=_fit(rows, lengths, _CALL_FLOPS / (3 * whole)),
        head=_within(ladder(8, shapes.rows * length, 6), _head_tokens(architecture)),
        leave=tuple(n for n in (1, 4, 16) if 2 * n <= shapes.rows),
        sizes=tuple(sorted({4096, 262144, max(4_194_304, weight_bytes)})),
        parameters=tuple(sorted({max(1, architecture.parameters() // n) for n in (1, 2, 8)})),
    )


def response_tokens(rows: int, length: int) -> int:
    """Response tokens of the micro-batches that are timed: half of each sequence."""
    return rows * (length // 2)


def ladder(first: int, last: int, ratio: float) -> tuple[int, ...]:
    """first … last in about equal ratios of at most `ratio`, both ends included."""
    out = [first]
    while out[-1] < last:
        out.append(min(last, max(out[-1] + 1, round(out[-1] * ratio))))
    if len(out) > 2 and out[-1] < 1.3 * out[-2]:
        del out[-2]
    return tuple(out)


def _head_tokens(architecture: Architecture) -> float:
    by_flops = _CALL_FLOPS / (3 * work.head_flops_per_token(architecture))
    return min(by_flops, _CALL_BYTES / (12.0 * architecture.vocabulary))


def _within(axis: tuple[int, ...], most: float) -> tuple[int, ...]:
    """The points up to `most`, the first always."""
    return tuple(n for n in axis if n <= most) or axis[:1]


def _fit(
    rows: tuple[int, ...], lengths: tuple[int, ...], tokens: float
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both axes shortened until their largest product is at most `tokens`, rows before lengths."""
    while rows[-1] * lengths[-1] > tokens and (len(rows) > 1 or len(lengths) > 1):
        if len(rows) > 1:
            rows = rows[:-1]
        else:
            lengths = lengths[:-1]
    return rows, lengths
