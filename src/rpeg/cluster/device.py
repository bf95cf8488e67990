"""`DeviceKind`: what one accelerator or core can do at best, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rpeg.errors import InputError, nearest
from rpeg.fields import Fields


@dataclass(frozen=True)
class DeviceKind:
    """One kind of device, with its advertised peaks.

    peak_flops: (dtype, dense FLOP/s) pairs. launch_overhead_seconds: least time between two kernels.
    host_bandwidth_bytes_per_second: to host memory and back, each direction.
    sources: (field, where its value is from) pairs.
    """

    name: str
    memory_bytes: int
    memory_bandwidth_bytes_per_second: float
    peak_flops: tuple[tuple[str, float], ...]
    host_bandwidth_bytes_per_second: float
    launch_overhead_seconds: float = 0.0
    sources: tuple[tuple[str, str], ...] = ()

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s in `dtype`. InputError when this kind cannot compute in it."""
        peaks = dict(self.peak_flops)
        if dtype not in peaks:
            raise InputError(f"{self.name} has no peak for dtype '{dtype}'. {nearest(dtype, peaks)}")
        return peaks[dtype]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {
            "name": self.name,
            "memory_bytes": self.memory_bytes,
            "memory_bandwidth_bytes_per_second": self.memory_bandwidth_bytes_per_second,
            "peak_flops": dict(self.peak_flops),
            "host_bandwidth_bytes_per_second": self.host_bandwidth_bytes_per_second,
            "launch_overhead_seconds": self.launch_overhead_seconds,
            "sources": dict(self.sources),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DeviceKind:
        """The kind that `to_json` wrote. InputError names a wrong, missing or unknown field."""
        fields = Fields("device kind", data)
        peaks = fields.mapping("peak_flops")
        kind = DeviceKind(
            name=fields.text("name"),
            memory_bytes=int(fields.number("memory_bytes")),
            memory_bandwidth_bytes_per_second=fields.number("memory_bandwidth_bytes_per_second"),
            peak_flops=tuple((str(dtype), Fields("peak_flops", peaks).number(dtype)) for dtype in peaks),
            host_bandwidth_bytes_per_second=fields.number("host_bandwidth_bytes_per_second"),
            launch_overhead_seconds=fields.number("launch_overhead_seconds", 0.0),
            sources=tuple(fields.named_texts("sources").items()),
        )
        fields.finish()
        return kind
