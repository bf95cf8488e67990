"""Seconds of what crosses links: collectives, weight transfers, offload."""

from rpeg.cost.network.collectives import Collective, collective_seconds

__all__ = ["Collective", "collective_seconds"]
