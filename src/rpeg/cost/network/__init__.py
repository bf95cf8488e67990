"""Seconds of what crosses links: collectives, weight transfers, offload."""

from rpeg.cost.network.collectives import collective, collective_seconds, exchange_seconds, moved_bytes
from rpeg.cost.network.routes import Collective

__all__ = ["Collective", "collective", "collective_seconds", "exchange_seconds", "moved_bytes"]
