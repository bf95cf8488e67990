"""`NetworkTraits`: how well a stack uses links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkTraits:
    """Links as a stack uses them.

    efficiency: share of the bandwidth within a node that large collectives reach.
    fabric_efficiency: the same of links between nodes.
    base_seconds: of any collective, before its first byte moves: its kernel's launch and hand-shake.
    """

    efficiency: float = 0.8
    fabric_efficiency: float = 0.9
    base_seconds: float = 6.6e-6
