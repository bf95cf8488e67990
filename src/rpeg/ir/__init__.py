"""The graph: models, stages and the edges that join them, also across steps."""

from rpeg.ir.edge import WEIGHTS, Chunk, Edge, Freshness, OnNewWeights, Unit
from rpeg.ir.graph import Graph
from rpeg.ir.model import HEADS, Model
from rpeg.ir.stage import Call, Kind, Op, Scope, Stage
from rpeg.ir.verify import RULES, verify, violations

__all__ = [
    "HEADS",
    "RULES",
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
