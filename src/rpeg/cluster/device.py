"""`DeviceKind`: what one accelerator or core can do at best, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from functools import cached_property
from typing import Any

from rpeg.errors import InputError, nearest
from rpeg.fields import Fields
from rpeg.hashing import kept_hash


@kept_hash
@dataclass(frozen=True)
class DeviceKind:
    """One kind of device, with its advertised peaks.

    memory_bytes: as sold. reported_memory_bytes: the total that the driver reports, None where that is all of it.
    peak_flops: (dtype, dense FLOP/s) pairs. launch_overhead_seconds: least time between two kernels.
    host_bandwidth_bytes_per_second: to host memory and back, each direction.
    nvlink_bandwidth_bytes_per_second: of one device, each direction; 0 where it has none. How devices are really
    joined is said by their cluster's links.
    power_watts: the limit; multiprocessors: SMs; l2_bytes: the last cache; 0 where unknown.
    generation: the chip's family, such as hopper. like: a kind whose measured kernels stand in where this one has none.
    sources: (field, where its value is from) pairs.
    """

    name: str
    memory_bytes: int
    memory_bandwidth_bytes_per_second: float
    peak_flops: tuple[tuple[str, float], ...]
    host_bandwidth_bytes_per_second: float
    launch_overhead_seconds: float = 0.0
    sources: tuple[tuple[str, str], ...] = ()
    reported_memory_bytes: int | None = None
    nvlink_bandwidth_bytes_per_second: float = 0.0
    power_watts: float = 0.0
    multiprocessors: int = 0
    l2_bytes: int = 0
    generation: str = ""
    like: str | None = None

    @property
    def usable_memory_bytes(self) -> int:
        """What processes share: as sold, less what the driver and error correction keep."""
        return self.memory_bytes if self.reported_memory_bytes is None else self.reported_memory_bytes

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s in `dtype`. InputError when this kind cannot compute in it."""
        peak = self.peaks.get(dtype)
        if peak is None:
            raise InputError(f"{self.name} has no peak for dtype '{dtype}'. {nearest(dtype, self.peaks)}")
        return peak

    @cached_property
    def peaks(self) -> Mapping[str, float]:
        """`peak_flops` by dtype."""
        return dict(self.peak_flops)

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
            **{key: value for key in _EXTRA if (value := getattr(self, key)) != _DEFAULTS[key]},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DeviceKind:
        """The kind that `to_json` wrote. InputError names a wrong, missing or unknown field."""
        fields = Fields("device kind", data)
        peaks = fields.mapping("peak_flops")
        reported, like = fields.get("reported_memory_bytes", None), fields.get("like", None)
        kind = DeviceKind(
            name=fields.text("name"),
            memory_bytes=int(fields.number("memory_bytes")),
            memory_bandwidth_bytes_per_second=fields.number("memory_bandwidth_bytes_per_second"),
            peak_flops=tuple((str(dtype), Fields("peak_flops", peaks).number(dtype)) for dtype in peaks),
            host_bandwidth_bytes_per_second=fields.number("host_bandwidth_bytes_per_second"),
            launch_overhead_seconds=fields.number("launch_overhead_seconds", 0.0),
            sources=tuple(fields.named_texts("sources").items()),
            reported_memory_bytes=None if reported is None else int(fields.number("reported_memory_bytes")),
            nvlink_bandwidth_bytes_per_second=fields.number("nvlink_bandwidth_bytes_per_second", 0.0),
            power_watts=fields.number("power_watts", 0.0),
            multiprocessors=fields.whole("multiprocessors", 0, least=0),
            l2_bytes=int(fields.number("l2_bytes", 0)),
            generation=fields.text("generation", "", least=0),
            like=None if like is None else fields.text("like"),
        )
        fields.finish()
        return kind


_EXTRA = (
    "reported_memory_bytes",
    "nvlink_bandwidth_bytes_per_second",
    "power_watts",
    "multiprocessors",
    "l2_bytes",
    "generation",
    "like",
)
"""Fields that are written only where they are known, so that plans of older kinds stay as they were."""

_DEFAULTS = {field.name: field.default for field in fields_of(DeviceKind)}
