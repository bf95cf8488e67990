"""Time, communication and memory of a stage, as trees that print.

Durations are pure functions of an architecture, the lengths of the samples at hand, a layout and a `Timing`:
`generate`, `infer`, `train`, `reward`, `publish`, `receive`, `call`. Memory: `phases`, `peak`.
"""

from rpeg.cost.communication import collective
from rpeg.cost.generation import Generation, generate
from rpeg.cost.grid import Grid
from rpeg.cost.host import columns, reward
from rpeg.cost.inference import infer
from rpeg.cost.memory import Memory, Tenant, Use, peak, phases
from rpeg.cost.table import OPS, Calibration
from rpeg.cost.timing import Timing
from rpeg.cost.training import shuffled, train
from rpeg.cost.transfer import call, move_samples, publish, receive, weight_bytes
from rpeg.cost.tree import Cost, parallel, sequence

__all__ = [
    "OPS",
    "Calibration",
    "Cost",
    "Generation",
    "Grid",
    "Memory",
    "Tenant",
    "Timing",
    "Use",
    "call",
    "collective",
    "columns",
    "generate",
    "infer",
    "move_samples",
    "parallel",
    "peak",
    "phases",
    "publish",
    "receive",
    "reward",
    "sequence",
    "shuffled",
    "train",
    "weight_bytes",
]
