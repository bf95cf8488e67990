"""Named ways in which a problem is made different: for what would make it fit, sensitivity, and sweeps."""

from rpeg.search.changes.base import Change
from rpeg.search.changes.hardware import Devices, FasterLinks, Memory, Microbatch, OfKind, Price, more_nodes
from rpeg.search.changes.work import (
    MaxResponse,
    MeanResponse,
    Prompts,
    Samples,
    SharedBackbone,
    ShorterTail,
    Staleness,
)

__all__ = [
    "Change",
    "Devices",
    "FasterLinks",
    "MaxResponse",
    "MeanResponse",
    "Memory",
    "Microbatch",
    "OfKind",
    "Price",
    "Prompts",
    "Samples",
    "SharedBackbone",
    "ShorterTail",
    "Staleness",
    "more_nodes",
]
