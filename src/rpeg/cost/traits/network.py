"""`NetworkTraits`: how well a stack uses links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkTraits:
    """Links as a stack uses them.

    efficiency: share of a link's bandwidth that large collectives reach.
    """

    efficiency: float = 0.8
