"""`Timing`: seconds of ops on one kind of device, measured where a table holds them, else by roofline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rpeg.cluster import DeviceKind, Link
from rpeg.cost.passes.table import Calibration
from rpeg.cost.passes.work import Work
from rpeg.cost.tree import Bound, Cost

Floats = npt.NDArray[np.float64]

# Roofline: the share of the advertised peaks that dense kernels of training shapes reach. An assumption, used only
# where nothing was measured; an estimate says what share of it rests on measurement.
_COMPUTE_EFFICIENCY = 0.5
_MEMORY_EFFICIENCY = 0.7


@dataclass(frozen=True)
class Timing:
    """What the times of a stage rest on.

    kind, dtype: of its devices. link: the slowest that joins them, None for a single device.
    calibration: measured tables; used only where they are of this kind of device and this dtype.
    """

    kind: DeviceKind
    dtype: str = "float32"
    link: Link | None = None
    calibration: Calibration | None = None

    def table(self, op: str, *shape: npt.ArrayLike) -> Floats | None:
        """Measured seconds of calls of these shapes, None where no table fits."""
        c = self.calibration
        if c is None or op not in c.tables or c.device != self.kind.name or c.dtype != self.dtype:
            return None
        return c.tables[op].at(*shape)

    def seconds(self, op: str, *shape: npt.ArrayLike, work: Work) -> Floats:
        """Seconds of each call: of the table, else of the roofline."""
        measured = self.table(op, *shape)
        return self.roofline(work) if measured is None else measured

    def roofline(self, work: Work) -> Floats:
        """max(compute, memory) + launches, with the efficiencies of this module (Williams et al. 2009)."""
        compute, memory, launch = self._parts(work)
        return np.maximum(compute, memory) + launch

    def cost(self, name: str, op: str, *shape: npt.ArrayLike, work: Work) -> Cost:
        """A leaf that sums calls of these shapes, given as arrays."""
        measured = self.table(op, *shape)
        seconds = self.roofline(work) if measured is None else measured
        size = np.broadcast(seconds, *shape, work.flops, work.bytes).shape
        total = float(np.broadcast_to(seconds, size).sum())
        return Cost(
            name,
            total,
            float(np.broadcast_to(work.flops, size).sum()),
            float(np.broadcast_to(work.bytes, size).sum()),
            self._bound(work),
            0.0 if measured is None else total,
            count=int(np.prod(size)),
        )

    def _parts(self, work: Work) -> tuple[Floats, Floats, Floats]:
        flops, size, launches = (
            np.asarray(x, dtype=np.float64) for x in (work.flops, work.bytes, work.launches)
        )
        return (
            flops / (self.kind.peak(self.dtype) * _COMPUTE_EFFICIENCY),
            size / (self.kind.memory_bandwidth_bytes_per_second * _MEMORY_EFFICIENCY),
            launches * self.kind.launch_overhead_seconds,
        )

    def _bound(self, work: Work) -> Bound:
        compute, memory, launch = (float(part.sum()) for part in self._parts(work))
        bounds: dict[Bound, float] = {"compute": compute, "memory": memory, "launch": launch}
        return max(bounds, key=lambda bound: bounds[bound])
