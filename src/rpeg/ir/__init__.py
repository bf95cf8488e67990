"""The graph: models, stages and the edges that join them, also across steps."""

from rpeg.ir.edge import (
    KEPT,
    POSITION,
    RETRY,
    STATE,
    WEIGHTS,
    Chunk,
    Edge,
    Freshness,
    OnNewWeights,
    Unit,
)
from rpeg.ir.graph import Graph
from rpeg.ir.model import HEADS, Model
from rpeg.ir.stage import Call, Kind, Op, Scope, Stage
from rpeg.ir.verify import RULES, verify, violations

__all__ = [
    "HEADS",
    "KEPT",
    "POSITION",
    "RETRY",
    "RULES",
    "STATE",
    "WEIGHTS",
    "Call",
    "Chunk",
    "Edge",
    "Freshness",
    "Graph",
    "Kind",
    "Model",
    "OnNewWeights",
    "Op",
    "Scope",
    "Stage",
    "Unit",
    "verify",
    "violations",
]
