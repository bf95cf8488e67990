"""`Policy`: how an engine takes its samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Batching = Literal["continuous", "static"]


@dataclass(frozen=True)
class Policy:
    """Ways of generating.

    batching: continuous takes a waiting sample as soon as one is done; static runs batch after batch, each until its
    longest sample is done.
    max_rows: sequences that a replica runs at once at most; None: as many as the engine does by default.
    share_prefixes: samples of one prompt share its prefill and its cache.
    overlapped: the engine prepares a step while the device is at the one before, as engines since 2025 do; else it
    schedules, samples and answers between steps.
    cache_bytes: of keys and values on each device; None: what card, weights and the engine's share leave.
    memory_share: of the card that the engine may take; None: what it takes by default.
    """

    batching: Batching = "continuous"
    max_rows: int | None = None
    share_prefixes: bool = True
    overlapped: bool = True
    cache_bytes: float | None = None
    memory_share: float | None = None
