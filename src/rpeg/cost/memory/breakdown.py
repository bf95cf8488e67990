"""`Breakdown` and `Footprint`: what a device holds, line by line and phase by phase."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from rpeg.units import GIB

Pool = Literal["state", "block", "working", "unused", "process"]
Phase = Literal[
    "load", "generate", "score", "update", "optimizer", "transfer", "wake-up", "checkpoint", "rest"
]
PHASES: tuple[Phase, ...] = (
    "load",
    "wake-up",
    "generate",
    "score",
    "update",
    "optimizer",
    "transfer",
    "checkpoint",
    "rest",
)


class Line(NamedTuple):
    """Something that a device holds. A named tuple, because memory makes hundreds of them for a stage.

    pool: `state`, tensors that live for long; `block`, few large ones that come and go; `working`, many of all sizes
    that do; `unused`, what the allocator keeps beyond these; `process`, what the driver and the communication library
    hold outside of it.
    """

    name: str
    bytes: float
    pool: Pool = "working"


@dataclass(frozen=True)
class Breakdown:
    """What one device holds in one phase at its fullest instant; the lines add up to `device_bytes`."""

    phase: Phase
    lines: tuple[Line, ...]

    def pool_bytes(self, *pools: Pool) -> float:
        """All lines of these pools together."""
        return sum([line.bytes for line in self.lines if line.pool in pools])

    @property
    def allocated_bytes(self) -> float:
        """Tensors: what `torch.cuda.max_memory_allocated` reports."""
        return self.device_bytes - self.pool_bytes("unused", "process")

    @property
    def reserved_bytes(self) -> float:
        """Tensors and the allocator's unused blocks: what `torch.cuda.max_memory_reserved` reports."""
        return self.device_bytes - self.pool_bytes("process")

    @cached_property
    def device_bytes(self) -> float:
        """With context and communication buffers: what nvidia-smi reports, and what must fit.

        Unused blocks count: what is in them is scattered, and the allocator fails before it has used them up.
        """
        return sum([line.bytes for line in self.lines])

    @property
    def largest(self) -> Line:
        """The line that holds most."""
        return max(self.lines, key=lambda line: line.bytes)

    def find(self, name: str) -> float:
        """Bytes of all lines whose names start with `name`."""
        return sum(line.bytes for line in self.lines if line.name.startswith(name))

    def __str__(self) -> str:
        shown = [line for line in self.lines if line.bytes]
        width = max((len(line.name) for line in shown), default=0)
        lines = [f"  {line.name:<{width}}  {gib_text(line.bytes):>11}" for line in shown]
        return "\n".join([f"{self.phase}: {gib_text(self.device_bytes)}", *lines])


@dataclass(frozen=True)
class Footprint:
    """What the device of one pipeline rank holds in every phase that occurs. rank: the one that holds most."""

    rank: int
    phases: tuple[Breakdown, ...]

    @property
    def peak(self) -> Breakdown:
        """The phase in which the device holds most."""
        return max(self.phases, key=lambda phase: phase.device_bytes)

    def phase(self, name: Phase) -> Breakdown | None:
        """A phase by its name, None where it does not occur."""
        return next((phase for phase in self.phases if phase.phase == name), None)

    @property
    def resting_bytes(self) -> float:
        """Tensors that stay on the device while other models use it."""
        rest = self.phase("rest")
        return rest.pool_bytes("state") if rest else 0.0

    def reserved_bytes(self, capacity_bytes: float) -> float:
        """Most that the allocator has reserved: it keeps what earlier phases needed, up to what the card leaves."""
        process = max(phase.pool_bytes("process") for phase in self.phases)
        least = max(phase.allocated_bytes for phase in self.phases)
        return max(least, min(max(phase.reserved_bytes for phase in self.phases), capacity_bytes - process))

    def short_bytes(self, capacity_bytes: float) -> float:
        """Bytes missing on a device of this capacity; 0.0 where every phase fits."""
        return max(0.0, self.peak.device_bytes - capacity_bytes)

    def fits(self, capacity_bytes: float) -> bool:
        """Whether every phase fits into a device of this capacity."""
        return self.short_bytes(capacity_bytes) == 0.0

    def verdict(self, capacity_bytes: float) -> str:
        """One sentence: the phase and the line that peak, and how much is short or free."""
        peak = self.peak
        short = self.short_bytes(capacity_bytes)
        state = f"{gib_text(short)} short of" if short else "fits into"
        return (
            f"pipeline rank {self.rank} needs {gib_text(peak.device_bytes)} in '{peak.phase}', mostly for"
            f" {peak.largest.name} ({gib_text(peak.largest.bytes)}): {state} {gib_text(capacity_bytes)}"
        )

    def __str__(self) -> str:
        return "\n".join(str(phase) for phase in self.phases)


def gib_text(count: float) -> str:
    """`2**31` → ``2.00 GiB``."""
    return f"{count / GIB:.2f} GiB"


def joined(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines without the empty ones."""
    return tuple([line for line in lines if line.bytes > 0])
