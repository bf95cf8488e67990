"""No process held more than its device has."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.units import bytes_text
from rpeg.verify.evidence import Breach, Evidence, Property


def memory_is_within_the_device(evidence: Evidence) -> Iterator[Breach]:
    """Where the cluster states a size; host slots have none of their own."""
    cluster = evidence.trace.plan.cluster
    sizes = {
        lane: cluster.device(ids[0]).kind.usable_memory_bytes
        for lane, ids in evidence.lowered.held.devices.items()
    }
    for span in evidence.trace.spans:
        size = sizes.get(span.lane, 0)
        if 0 < size < span.memory_bytes:
            held, has = bytes_text(span.memory_bytes), bytes_text(size)
            yield f"{span.item} held {held} on {span.lane}, which has {has}", (span,)


MEMORY: tuple[Property, ...] = (memory_is_within_the_device,)
