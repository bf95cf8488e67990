"""Memory of a device per phase: what is held, line by line, and what would make it fit."""

from rpeg.cost.memory.breakdown import PHASES, Breakdown, Footprint, Line, Phase, Pool
from rpeg.cost.memory.footprint import infer_memory, train_memory

__all__ = ["PHASES", "Breakdown", "Footprint", "Line", "Phase", "Pool", "infer_memory", "train_memory"]
