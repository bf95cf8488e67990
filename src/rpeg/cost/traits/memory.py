"""`MemoryTraits`: what a stack holds beside what the model needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryTraits:
    """Memory.

    context_bytes: of a process that holds no model: driver context and libraries.
    """

    context_bytes: float = 0.5e9
