"""Memory of a device per phase: what is held, line by line, and what would make it fit."""

from rpeg.cost.memory.breakdown import PHASES, Breakdown, Footprint, Line, Phase, Pool
from rpeg.cost.memory.cache import cache_bytes, rows_that_fit, sequence_cache_bytes
from rpeg.cost.memory.engine import cache_room, generate_memory, rows_in_cache
from rpeg.cost.memory.footprint import infer_memory, train_memory
from rpeg.cost.memory.host import host_memory, host_short_bytes
from rpeg.cost.memory.remedies import Remedy, advice, remedies

__all__ = [
    "PHASES",
    "Breakdown",
    "Footprint",
    "Line",
    "Phase",
    "Pool",
    "Remedy",
    "advice",
    "cache_bytes",
    "cache_room",
    "generate_memory",
    "host_memory",
    "host_short_bytes",
    "infer_memory",
    "remedies",
    "rows_in_cache",
    "rows_that_fit",
    "sequence_cache_bytes",
    "train_memory",
]
