"""Weights and samples on their way: publishing, the object store, loading; and what a call itself costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rpeg.architecture import Architecture, Head
from rpeg.cost.passes import work
from rpeg.cost.passes.host import joining
from rpeg.cost.passes.timing import Timing
from rpeg.cost.tree import Cost, sequence

# Passes over the bytes where nothing was measured: flatten and digest; copy, check; a copy each way in the store.
_PASSES = {"publish": 2.0, "load": 2.0, "put": 1.0, "get": 1.0}

# The canary where nothing was measured: a forward of 16 tokens in eager mode.
_CANARY_SECONDS = 5e-3

# One call through the runtime where nothing was measured (Ray 2.x on one machine, about 1 ms).
_CALL_SECONDS = 1e-3


def weight_bytes(architecture: Architecture, dtype: str, head: Head = "lm") -> float:
    """Bytes of one version of a model."""
    return float(architecture.parameters(head) * work.BYTES_OF[dtype])


def publish(size_bytes: float, timing: Timing, *, shards: int = 1, sent: bool = True) -> Cost:
    """Each rank of a trainer flattens and digests its part of a version; if it is sent, the canary and the store.

    shards: ranks that the model is cut over. sent: someone holds a copy that this version goes to.
    """
    part = size_bytes / shards
    parts = [_pass("flatten and digest", "publish", part, timing)]
    if sent:
        parts += [_constant("canary", _CANARY_SECONDS, timing), _pass("put", "put", part, timing)]
    return sequence("publish", parts)


def receive(size_bytes: float, timing: Timing, *, across: bool = False) -> Cost:
    """A receiver gets a version from the store, loads it and takes the digest of what it then holds.

    across: the bytes come over the timing's link, from another node.
    """
    parts = [_pass("get", "get", size_bytes, timing), _pass("load", "load", size_bytes, timing)]
    parts.append(_constant("canary", _CANARY_SECONDS, timing))
    if across and timing.link is not None:
        link = timing.link
        seconds = link.latency_seconds + size_bytes / link.bandwidth_bytes_per_second
        parts.insert(0, Cost("wire", seconds, 0.0, size_bytes, "network"))
    return sequence("receive", parts)


def move_samples(size_bytes: float, timing: Timing, samples: int = 0) -> Cost:
    """Batches from one worker to another through the store, and their `samples` joined by id at the other end."""
    parts = [_pass("put", "put", size_bytes, timing), _pass("get", "get", size_bytes, timing)]
    return sequence("move samples", [*parts, joining(samples, timing)])


def call(timing: Timing, count: int = 1) -> Cost:
    """What launching an item and hearing of its end costs, whatever it does."""
    return replace(_constant("call", _CALL_SECONDS, timing).scaled(count), count=count)


def _constant(op: str, otherwise_seconds: float, timing: Timing) -> Cost:
    """An op that always takes the same time."""
    measured = timing.table(op)
    if measured is None:
        return Cost(op, otherwise_seconds, bound="host")
    return Cost(op, float(measured), bound="host", measured_seconds=float(measured))


def _pass(name: str, op: str, size_bytes: float, timing: Timing) -> Cost:
    each = np.array([size_bytes])
    return timing.cost(name, op, each, work=work.copies(each, _PASSES[op]))
