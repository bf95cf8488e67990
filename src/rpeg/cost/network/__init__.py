"""Seconds of what crosses links: collectives, weight transfers, offload."""

from rpeg.cost.network.collectives import collective, collective_seconds, exchange_seconds, moved_bytes
from rpeg.cost.network.routes import Collective
from rpeg.cost.network.shards import Held
from rpeg.cost.network.sync import (
    BUCKET_BYTES,
    Strategy,
    Tensors,
    copied,
    named_tensors,
    offload,
    sync,
    transient_bytes,
)
from rpeg.cost.network.transfer import Transfer, transfer

__all__ = [
    "BUCKET_BYTES",
    "Collective",
    "Held",
    "Strategy",
    "Tensors",
    "Transfer",
    "collective",
    "collective_seconds",
    "copied",
    "exchange_seconds",
    "moved_bytes",
    "named_tensors",
    "offload",
    "sync",
    "transfer",
    "transient_bytes",
]
