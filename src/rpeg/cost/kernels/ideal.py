"""Seconds that a kernel would take at the advertised peaks of a device: the roofline itself."""

from __future__ import annotations

from typing import Any

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.timed import largest
from rpeg.cost.kernels.work import Work, stored

# Where a device does not compute in a dtype, operands are widened: the next in this order that it has.
_WIDER = ("float4", "int4", "float8", "bfloat16", "float16", "tfloat32", "float32", "float64")


def computes_as(kind: DeviceKind, dtype: str) -> str:
    """The dtype in which this kind computes products of operands in `dtype`: itself, or the next wider it has."""
    peaks, dtype = kind.peaks, stored(dtype)
    if dtype in peaks or dtype not in _WIDER:
        return dtype
    wider = _WIDER[_WIDER.index(dtype) :]
    return next((candidate for candidate in wider if candidate in peaks), dtype)


def ideal_seconds(kind: DeviceKind, work: Work, dtype: str) -> Any:
    """The longer of computing and moving at the advertised peaks."""
    flops, moved = work
    return largest(flops / kind.peak(dtype), moved / kind.memory_bandwidth_bytes_per_second)
