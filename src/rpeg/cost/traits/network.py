"""`NetworkTraits`: how well a stack uses links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkTraits:
    """Links as a stack uses them.

    efficiency: share of the bandwidth within a node that large collectives reach, where none were measured.
    fabric_efficiency: the same of links between nodes.
    base_seconds: of any collective, before its first byte moves: its kernel's launch and hand-shake.
    host_efficiency: share of the host link that copies from pinned memory reach.
    pageable_bytes_per_second: of one process that copies from or to memory that is not pinned.
    tensor_seconds: host time for one named tensor on its way into an engine.
    gather_seconds: host time for the gathering of one sharded tensor on the way out of a trainer.
    bucket_seconds: host time for one bucket of tensors: a call, its answer, a barrier.
    turn_seconds: a process that turns from one kind of work to another empties its allocator's cache and prepares.
    wake_seconds: an engine that slept maps its memory again; its captured graphs stay valid.
    recapture_seconds: an engine that was torn down captures its graphs again.
    """

    efficiency: float = 0.72
    fabric_efficiency: float = 0.9
    base_seconds: float = 6.6e-6
    host_efficiency: float = 0.85
    pageable_bytes_per_second: float = 4e9
    tensor_seconds: float = 1e-4
    gather_seconds: float = 3e-4
    bucket_seconds: float = 5e-3
    turn_seconds: float = 1.2
    wake_seconds: float = 1.0
    recapture_seconds: float = 20.0
